// Sweeps: what came of every value that was tried and, once one has ended, how much each setting mattered.

import { askSweeps } from "./api.js";
import { byId, element, setOptions, svg } from "./dom.js";
import { compact } from "./format.js";

const WIDTH = 260;
const HEIGHT = 150;
const EDGE = { left: 46, right: 10, top: 10, bottom: 34 };
let known = "[]";
let sweeps = [];

export function setUpSweeps() {
  byId("sweep").addEventListener("change", draw);
}

// `listed` has the name and a stamp of every sweep; they are asked for when one has changed.
export async function refreshSweeps(listed) {
  const now = JSON.stringify(listed);
  if (now === known) return;
  sweeps = await askSweeps();
  known = now;
  draw();
}

function draw() {
  byId("sweeps").hidden = sweeps.length === 0;
  if (!sweeps.length) return;
  const shown = sweeps.find((sweep) => sweep.name === byId("sweep").value) ?? sweeps[0];
  setOptions(byId("sweep"), sweeps.map((sweep) => [sweep.name, sweep.name]), shown.name);
  const slices = shown.slices.filter((slice) => slice.trials.length);
  byId("sweep-panel").replaceChildren(
    shown.under_way ? element("p", { class: "muted", role: "status" }, shown.under_way) : importanceTable(shown.importance),
    element("div", { class: "slices" }, ...slices.map(slicePlot)),
  );
}

function importanceTable(importance) {
  if (!importance.length) {
    return element("p", { class: "muted" }, "Too few trials were completed to tell which settings mattered.");
  }
  const most = Math.max(...importance.map(([, share]) => share), Number.MIN_VALUE);
  const rows = importance.map(([name, share]) => element(
    "tr", {},
    element("th", { scope: "row" }, name ?? ""),
    element("td", { class: "number" }, `${(100 * share).toFixed(0)} %`),
    element("td", { class: "fill" }, bar(share / most)),
  ));
  return element("table", { class: "totals", "aria-label": "Importance of settings" }, element("tbody", {}, ...rows));
}

function bar(share) {
  const made = element("span", {});
  made.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  made.style.background = "var(--c0)";
  return element("div", { class: "stack" }, made);
}

// Objectives over the values of a setting; rings are trials that were given up.
function slicePlot({ setting, trials }) {
  const across = horizontal(trials.map(([, value]) => value));
  const objectives = trials.map(([, , objective]) => objective);
  const [low, high] = [Math.min(...objectives), Math.max(...objectives)];
  const up = (objective) => {
    const share = high > low ? (objective - low) / (high - low) : 0.5;
    return HEIGHT - EDGE.bottom - share * (HEIGHT - EDGE.top - EDGE.bottom);
  };
  const dots = trials.map(([trial, value, objective, state]) => {
    const dot = svg("circle", { cx: across.place(value), cy: up(objective), r: 4, class: state === "complete" ? "dot" : "dot ring" });
    dot.append(svg("title", {}, `trial ${compact(trial)}: ${setting} = ${shownValue(value)}, ${compact(objective)}`));
    return dot;
  });
  const label = `${setting}: objective of ${trials.length} trials, from ${compact(low)} to ${compact(high)}`;
  const marks = [
    axisText(EDGE.left - 6, up(high) + 4, compact(high), "end"),
    ...(high > low ? [axisText(EDGE.left - 6, up(low) + 4, compact(low), "end")] : []),
    ...across.marks.map(([x, text]) => axisText(x, HEIGHT - 18, text, "middle")),
  ];
  const frame = svg("path", {
    d: `M${EDGE.left} ${EDGE.top}V${HEIGHT - EDGE.bottom}H${WIDTH - EDGE.right}`, class: "axis",
  });
  return element(
    "figure", { class: "slice" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, frame, ...marks, ...dots),
    element("figcaption", {}, `${setting}${across.isLogarithmic ? " (logarithmic)" : ""}`),
  );
}

// Where a value lies: numbers on an axis, logarithmic over more than two powers of ten; anything else side by side.
function horizontal(values) {
  const [left, right] = [EDGE.left + 8, WIDTH - EDGE.right - 8];
  if (values.some((value) => typeof value !== "number")) {
    const names = [...new Set(values.map(shownValue))].sort();
    const place = (value) => left + (right - left) * (names.length > 1 ? names.indexOf(shownValue(value)) / (names.length - 1) : 0.5);
    return { place, marks: names.slice(0, 6).map((name) => [place(name), name.slice(0, 12)]), isLogarithmic: false };
  }
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const isLogarithmic = low > 0 && high / low > 100;
  const scale = isLogarithmic ? Math.log : (value) => value;
  const place = (value) => left + (right - left) * (high > low ? (scale(value) - scale(low)) / (scale(high) - scale(low)) : 0.5);
  const ends = high > low ? [low, high] : [low];
  return { place, marks: ends.map((value) => [place(value), compact(value)]), isLogarithmic };
}

function shownValue(value) {
  return typeof value === "number" ? compact(value) : String(value);
}

function axisText(x, y, text, anchor) {
  return svg("text", { x, y, "text-anchor": anchor, class: "axis-text" }, text);
}
