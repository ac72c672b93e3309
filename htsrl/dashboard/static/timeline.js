// What each process did and whom it waited for, and how long each environment's steps take.

import { element, setOptions, svg } from "./dom.js";
import { duration, ticks, whole } from "./format.js";
import { state } from "./state.js";
import { colorOf, curveColor } from "./theme.js";

const LANE = 24;
const LABELS = 168;
const WINDOWS = [0, 60, 20, 5, 1, 0.2];
const AXIS = 22;
const MAX_ENVIRONMENTS = 128;
const NARROW = 520;
const CLASSES = ["", "wide", "", "number", "number wide", "number", "number wide"]; // of the table of environments
const COLORS = { // of work; every kind has one of its own
  step: "--c0", reset: "--c5", save_state: "--c1", inference: "--c2", learning: "--c3", gradient: "--c4",
  finish_rollout: "--c6", update: "--c9", publish: "--c8", checkpoint: "--c7", start: "--start",
};
const WAITS = { // greys, by whom a worker waits for; for the slowest environment stands out
  wait_slowest: "--slow", wait_learner: "--wait-learner", wait_orders: "--wait-learner",
  wait_environments: "--wait-environments", wait_requests: "--wait-environments",
  wait_answers: "--wait-actor", wait_gradients: "--wait-gradients",
};

export function timelinePanel(timeline, row) {
  const workers = timeline.workers;
  if (!workers.length) return [element("p", { class: "muted" }, "This run has no timeline.")];
  const kinds = [...new Set(workers.flatMap((worker) => [...Object.keys(worker.totals), ...worker.spans.map((span) => span[0])]))].sort();
  const colors = new Map(kinds.map((kind) => [kind, colorOfKind(kind, kinds)]));
  return [
    ...waits(timeline),
    ...stragglers(timeline),
    ...events(timeline),
    windowChoice(),
    legend(kinds, colors),
    lanes(timeline, colors, row.state === "running"),
    element("h3", {}, "Where the time went"),
    totals(workers, kinds, colors),
  ];
}

function colorOfKind(kind, kinds) {
  return COLORS[kind] ?? WAITS[kind] ?? (kind.startsWith("wait") ? "--wait" : curveColor(kinds.indexOf(kind)));
}

function subjectOf(kind, subject) {
  if (subject === null) return null;
  return { inference: `${subject} rows`, update: `version ${subject}` }[kind] ?? `environment ${subject}`;
}

function waits(timeline) {
  return timeline.waits ? [element("ul", { class: "warnings waits", "aria-label": "Waiting" }, element("li", {}, timeline.waits))] : [];
}

function stragglers(timeline) {
  if (!timeline.stragglers.length) return [];
  return [element("ul", { class: "warnings stragglers", "aria-label": "Stragglers" },
    ...timeline.stragglers.map((text) => element("li", {}, element("b", {}, "▲ Straggler: "), text)))];
}

function events(timeline) {
  if (!timeline.events.length) return [];
  const shown = timeline.events.slice(-20).reverse();
  return [element("ul", { class: "warnings events", "aria-label": "Events" }, ...shown.map((event) => element("li", {},
    element("b", {}, `${event.kind}: `), `${event.subject ?? ""} at ${duration(event.seconds)}`)))];
}

// How much of the end is shown; it is drawn again when the run has written more, or at once.
function windowChoice() {
  const choice = element("select", { "aria-label": "Shown time" });
  setOptions(choice, WINDOWS.map((seconds) => [String(seconds), seconds ? `last ${duration(seconds)}` : "all that was kept"]), String(state.window));
  choice.addEventListener("change", () => {
    state.window = Number(choice.value);
    document.querySelector(".lanes")?.dispatchEvent(new Event("window"));
  });
  return choice;
}

function legend(kinds, colors) {
  return element("ul", { class: "legend" }, ...kinds.map((kind) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = `var(${colors.get(kind)})`;
    return element("li", {}, swatch, kind.replaceAll("_", " "));
  }));
}

function lanes(timeline, colors, isLive) {
  const { workers } = timeline;
  const slow = new Set(timeline.environments.filter((env) => env.is_straggler).map((env) => env.worker));
  const ends = workers.flatMap((worker) => worker.spans.map((span) => span[1] + span[2]));
  const starts = workers.flatMap((worker) => worker.spans.map((span) => span[1]));
  const all = ends.length ? [reduced(starts, Math.min), reduced(ends, Math.max)] : [0, 1];
  const shown = () => (state.window ? [Math.max(all[0], all[1] - state.window), all[1]] : all);
  const canvas = element("canvas", { tabIndex: 0, role: "img" });
  canvas.setAttribute("aria-label", `Timeline of ${workers.length} processes, ${duration(all[1] - all[0])}${isLive ? ", live" : ""}. ${timeline.stragglers.join("; ")}`);
  const tip = element("div", { class: "tip", hidden: true });
  const node = element("div", { class: "plot lanes" }, canvas, tip);
  node.style.height = `${workers.length * LANE + AXIS + 4}px`;
  const draw = () => drawLanes(canvas, node, timeline, colors, shown(), slow);
  node.addEventListener("window", draw);
  new ResizeObserver(draw).observe(node);
  canvas.addEventListener("pointermove", (event) => showSpan(event, canvas, tip, workers, shown()));
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  return node;
}

function drawLanes(canvas, node, timeline, colors, range, slow) {
  const [width, height] = [node.clientWidth, node.clientHeight];
  if (!width) return;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const labels = labelWidth(width);
  const toPixel = (time) => labels + ((time - range[0]) / (range[1] - range[0] || 1)) * (width - labels - 8);
  timeline.workers.forEach((worker, i) => {
    const y = i * LANE;
    pen.fillStyle = colorOf(slow.has(worker.name) ? "--warn" : "--text");
    pen.fillText((slow.has(worker.name) ? "▲ " : "") + worker.name, 0, y + LANE / 2, labels - 8);
    for (const [kind, start, length] of worker.spans) {
      if (start + length < range[0]) continue;
      const left = Math.max(labels, toPixel(start));
      pen.fillStyle = colorOf(colors.get(kind));
      pen.fillRect(left, y + 3, Math.max(0.75, toPixel(start + length) - left - 0.25), LANE - 6);
    }
  });
  const bottom = timeline.workers.length * LANE;
  pen.fillStyle = colorOf("--warn");
  for (const event of timeline.events) {
    if (event.seconds === null || event.seconds < range[0] || event.seconds > range[1]) continue;
    pen.fillRect(toPixel(event.seconds) - 1, 0, 2, bottom);
  }
  pen.fillStyle = colorOf("--muted");
  pen.textAlign = "center";
  for (const tick of ticks(...range, (width - labels) / 110)) pen.fillText(duration(tick), Math.min(toPixel(tick), width - 22), bottom + AXIS / 2 + 2);
  pen.textAlign = "left";
}

function labelWidth(width) {
  return width < NARROW ? 92 : LABELS;
}

function showSpan(event, canvas, tip, workers, range) {
  const box = canvas.getBoundingClientRect();
  const labels = labelWidth(box.width);
  const time = range[0] + ((event.clientX - box.left - labels) / (box.width - labels - 8)) * (range[1] - range[0]);
  const worker = workers[Math.floor((event.clientY - box.top) / LANE)];
  const slack = (1.5 / box.width) * (range[1] - range[0]);
  const span = worker?.spans.findLast(([, start, length]) => start - slack <= time && time <= start + length + slack);
  tip.hidden = !span;
  if (!span) return;
  const [kind, start, length, subject, soFar] = span;
  tip.replaceChildren(element("b", {}, kind.replaceAll("_", " ")), ` ${[duration(length), soFar].filter(Boolean).join(" ")} at ${duration(start)}`,
    element("div", { class: "muted" }, [worker.name, subjectOf(kind, subject)].filter(Boolean).join(", ")));
  const x = event.clientX - box.left;
  tip.style.left = x > box.width / 2 ? "auto" : `${x + 12}px`;
  tip.style.right = x > box.width / 2 ? `${box.width - x + 12}px` : "auto";
  tip.style.top = `${Math.floor((event.clientY - box.top) / LANE) * LANE + LANE}px`;
}

function totals(workers, kinds, colors) {
  const lines = workers.map((worker) => {
    const sum = Object.values(worker.totals).reduce((all, seconds) => all + seconds, 0) || 1;
    const bar = element("div", { class: "stack", role: "img", "aria-label": kinds.filter((kind) => worker.totals[kind]).map((kind) => `${kind} ${Math.round((100 * worker.totals[kind]) / sum)} %`).join(", ") });
    for (const kind of kinds.filter((each) => worker.totals[each])) {
      const part = element("span", { title: `${kind.replaceAll("_", " ")}: ${duration(worker.totals[kind])}` });
      part.style.width = `${(100 * worker.totals[kind]) / sum}%`;
      part.style.background = `var(${colors.get(kind)})`;
      bar.append(part);
    }
    const largest = kinds.filter((kind) => worker.totals[kind]).sort((a, b) => worker.totals[b] - worker.totals[a])[0];
    const said = largest ? `${Math.round((100 * worker.totals[largest]) / sum)} % ${largest.replaceAll("_", " ")}` : "";
    return element("tr", {}, element("th", { scope: "row" }, worker.name), element("td", { class: "fill" }, bar), element("td", { class: "wide" }, said));
  });
  return element("table", { class: "totals" }, element("tbody", {}, ...lines));
}

export function environmentsPanel(timeline) {
  const all = timeline.environments;
  if (!all.length) return [element("p", { class: "muted" }, "This run has no step times of its environments.")];
  const slowestFirst = [...all].sort((a, b) => (b.mean_seconds ?? 0) - (a.mean_seconds ?? 0)).slice(0, MAX_ENVIRONMENTS);
  const uppers = [...new Set(slowestFirst.flatMap((env) => env.histogram.map(([upper]) => upper)))].sort((a, b) => a - b);
  const heads = ["Environment", "Process", "Step times", "Mean", "Longest", "Of the median", "Steps"];
  const lines = slowestFirst.map((env) => element("tr", { class: env.is_straggler ? "straggler" : "" },
    element("th", { scope: "row" }, `${env.is_straggler ? "▲ " : ""}environment ${env.env}`),
    element("td", { class: "wide" }, env.worker ?? "–"),
    element("td", {}, histogram(env, uppers)),
    element("td", { class: "number" }, duration(env.mean_seconds)),
    element("td", { class: "number wide" }, duration(env.max_seconds)),
    element("td", { class: "number" }, env.times_median === null ? "–" : `${env.times_median.toFixed(2)} ×`),
    element("td", { class: "number wide" }, whole(env.steps))));
  const range = uppers.length ? `Histograms go from ${duration(uppers[0])} to ${duration(uppers[uppers.length - 1])}, the same for all.` : "";
  const left = all.length > MAX_ENVIRONMENTS ? ` The slowest ${MAX_ENVIRONMENTS} of ${all.length} are shown.` : "";
  return [
    ...stragglers(timeline),
    element("p", { class: "muted" }, range + left),
    element("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Environments" }, element("table", { class: "environments" },
      element("thead", {}, element("tr", {}, ...heads.map((head, i) => element("th", { scope: "col", class: CLASSES[i] }, head)))),
      element("tbody", {}, ...lines))),
  ];
}

// Heights are square roots, so that rare long steps are seen beside the many short ones.
function histogram(env, uppers) {
  const [width, height] = [180, 24];
  const counts = new Map(env.histogram);
  const most = reduced(env.histogram.map(([, count]) => count), Math.max) || 1;
  const bar = width / Math.max(1, uppers.length);
  const bars = uppers.map((upper, i) => {
    const tall = Math.sqrt((counts.get(upper) ?? 0) / most) * height;
    return svg("rect", { x: i * bar, y: height - tall, width: Math.max(0.5, bar - 1), height: tall });
  });
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "histogram" }, ...bars);
  drawing.setAttribute("aria-label", `Step times of environment ${env.env}: mean ${duration(env.mean_seconds)}, longest ${duration(env.max_seconds)}`);
  return drawing;
}

function reduced(values, pick) {
  return values.reduce((a, b) => pick(a, b), values[0] ?? 0);
}
