// Charts of chosen metrics over the selected runs, or over groups of them with mean and interval.

import { askCurves, askMetrics } from "./api.js";
import { LineChart } from "./chart.js";
import { byId, element, setOptions, setText } from "./dom.js";
import { compact, duration } from "./format.js";
import { colorIndex, drawnRows, groupNames, groupOf, groups, state } from "./state.js";
import { meanOverRuns, ordered, smoothed } from "./statistics.js";
import { curveColor } from "./theme.js";

const FIRST_METRICS = ["rollout/ep_rew_mean", "eval/mean_reward", "time/fps", "hts/lag_max"];
const FALLBACKS = { "eval/mean_reward": "rollout/ep_len_mean" };
const MAX_FAINT = 40;
const MAX_LEGEND = 30;
const cards = [];
let metrics = [];
let knowsMetrics = false;

export function setUpCurves() {
  cards.push(...FIRST_METRICS.map((metric, i) => newCard(metric, i === 0)));
  byId("charts").replaceChildren(...cards.map((card) => card.node));
  for (const radio of document.querySelectorAll("input[name=axis]")) {
    radio.addEventListener("change", () => { state.axis = radio.value; cards.forEach((card) => card.chart.unzoom()); drawCurves(); });
  }
  byId("smoothing").addEventListener("input", (event) => {
    state.smoothing = Number(event.target.value);
    byId("smoothing-value").textContent = state.smoothing ? state.smoothing.toFixed(2) : "off";
    drawCurves();
  });
}

function newCard(metric, isLarge) {
  const card = { metric, known: new Map(), buckets: 0, isLarge };
  card.choice = element("select", { "aria-label": "Metric" });
  card.choice.addEventListener("change", () => {
    card.metric = card.choice.value;
    card.isChosen = true;
    card.known.clear();
    card.chart.unzoom();
    refreshCard(card);
  });
  card.chart = new LineChart(() => `${card.metric} over ${state.axis === "step" ? "steps" : "wall-clock time"}`, formatX());
  card.legend = element("ul", { class: "legend" });
  card.note = element("p", { class: "muted note", hidden: true });
  card.node = element("div", { class: isLarge ? "chart large" : "chart", role: "group", "aria-label": "Chart" },
    element("div", { class: "chart-bar" }, card.choice), card.chart.node, card.note, card.legend);
  return card;
}

function formatX() {
  return state.axis === "step" ? compact : duration;
}

export async function refreshCurves() {
  await Promise.all([refreshMetrics(), ...cards.map(refreshCard)]);
}

async function refreshMetrics() {
  metrics = await askMetrics([...state.selected]);
  const others = useFallbacks();
  for (const card of cards) setOptions(card.choice, metrics.map(({ name }) => [name, name]), card.metric);
  await Promise.all(others.map(refreshCard));
}

// Where no run has a metric of the first choice, another one is shown, until the user chooses.
function useFallbacks() {
  const names = new Set(metrics.map(({ name }) => name));
  if (knowsMetrics || !names.size) return [];
  knowsMetrics = true;
  const others = cards.filter((card) => !names.has(card.metric) && names.has(FALLBACKS[card.metric]) && !card.isChosen);
  for (const card of others) {
    card.metric = FALLBACKS[card.metric];
    card.known.clear();
  }
  return others;
}

// An answer counts only if nobody has asked for something else meanwhile.
async function refreshCard(card) {
  const ids = [...state.selected];
  const buckets = ids.length <= 12 ? 600 : ids.length <= 40 ? 300 : 150;
  if (buckets !== card.buckets) card.known.clear();
  card.buckets = buckets;
  const { metric } = card;
  const inside = [...ids, ...drawnRows().map((row) => groupOf(row))].join();
  const known = ids.map((id) => [id, card.known.get(id)?.version ?? ""]);
  const answer = await askCurves(metric, known, buckets);
  if (metric !== card.metric || buckets !== card.buckets) return;
  const news = Object.entries(answer.curves).filter(([, { curve }]) => curve !== undefined);
  for (const [id, { version, curve }] of news) card.known.set(id, { version, curve });
  if (news.length || inside !== card.inside) drawCard(card);
  card.inside = inside;
}

export function drawCurves() {
  cards.forEach(drawCard);
}

function drawCard(card) {
  setOptions(card.choice, metrics.map(({ name }) => [name, name]), card.metric);
  const rows = drawnRows();
  const lines = state.group ? groupLines(card, rows) : runLines(card, rows);
  card.chart.show(lines, formatX());
  card.node.dataset.drawn = String(lines.filter((line) => !line.faint && line.xs.length).length);
  card.node.dataset.metric = card.known.size ? card.metric : "";
  if (card.isLarge) drawLegend(card, lines.filter((line) => !line.faint));
  const meaning = metrics.find(({ name }) => name === card.metric)?.meaning ?? "";
  const hasData = lines.some((line) => line.xs.length);
  card.note.hidden = hasData;
  setText(card.note, rows.length ? "No selected run has this metric." : state.selected.size ? "The filter hides every selected run." : "No run is selected.");
  card.choice.title = meaning;
  drawReading();
}

function drawReading() {
  const shares = cards.flatMap((card) => [...card.known.entries()]
    .filter(([id, { curve }]) => curve && curve.read < 1 && state.selected.has(id)).map(([, { curve }]) => curve.read));
  const notes = [
    state.group ? "Lines are means over the runs of a group, bands their 95 % t-intervals." : "",
    shares.length ? "Long files are still being read; until then a sample of their lines is drawn." : "",
  ];
  setText(byId("reading"), notes.filter(Boolean).join(" "));
}

function lineOf(card, row) {
  const curve = card.known.get(row.id)?.curve;
  if (!curve) return { xs: [], ys: [] };
  return ordered({ xs: curve[state.axis], ys: curve.mean, lows: curve.low, highs: curve.high });
}

function runLines(card, rows) {
  const withFaint = state.smoothing > 0 && rows.length <= MAX_FAINT;
  return rows.flatMap((row) => {
    const [raw, color] = [lineOf(card, row), curveColor(colorIndex(groupOf(row)))];
    const line = { ...raw, ys: smoothed(raw.ys, state.smoothing), name: row.name, color, id: row.id };
    if (state.smoothing) delete line.lows;
    return withFaint ? [{ ...raw, color, faint: true, name: row.name }, line] : [line];
  });
}

function groupLines(card, rows) {
  const found = groups(rows);
  const names = groupNames(found);
  return [...found].flatMap(([key, members]) => {
    const color = curveColor(colorIndex(key));
    const curves = members.map((row) => {
      const raw = lineOf(card, row);
      return { xs: raw.xs, ys: smoothed(raw.ys, state.smoothing), name: row.name };
    });
    const name = names.get(key);
    const known = curves.filter((curve) => curve.xs.length);
    if (known.length < 2) return known.map((curve) => ({ ...curve, name, color, id: key, members: 1 }));
    const faint = rows.length <= MAX_FAINT ? known.map((curve) => ({ ...curve, color, faint: true })) : [];
    return [...faint, { ...meanOverRuns(known), name, color, id: key, members: known.length }];
  });
}

function drawLegend(card, lines) {
  const items = lines.filter((line) => line.xs.length).slice(0, MAX_LEGEND).map((line) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = `var(${line.color})`;
    const last = line.ys.length - 1;
    const half = line.counts ? ` ± ${compact(line.highs[last] - line.ys[last])}` : "";
    const members = line.members > 1 ? ` (n = ${line.members})` : "";
    return element("li", { "data-last-x": String(line.xs[last]), "data-last-y": String(line.ys[last]), "data-interval": line.counts ? `${line.lows[last]},${line.highs[last]}` : "", title: line.name },
      swatch, element("b", {}, compact(line.ys[last]) + half), element("span", { class: "muted ellipsis" }, line.name + members));
  });
  if (lines.length > MAX_LEGEND) items.push(element("li", { class: "muted" }, `and ${lines.length - MAX_LEGEND} more`));
  card.legend.replaceChildren(...items);
}
