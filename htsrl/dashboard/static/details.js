// One run in tabs, and how the selected runs differ in their settings.

import { askDetails, askTimeline, videoAddress } from "./api.js";
import { byId, copyButton, element, setOptions } from "./dom.js";
import { compact, duration, whole } from "./format.js";
import { allRows, drawnRows, state } from "./state.js";
import { environmentsPanel, timelinePanel } from "./timeline.js";

const MAX_COMPARED = 12;
const LONG_FACT = 18; // letters that fit into the width of one fact
const TABS = {
  overview: ["Overview", overviewPanel],
  timeline: ["Timeline", (about, timeline) => timelinePanel(timeline, about.row)],
  environments: ["Environments", (about, timeline) => environmentsPanel(timeline)],
  evaluation: ["Evaluation", evaluationPanel],
  videos: ["Videos", videosPanel],
  settings: ["Settings", settingsPanel],
};
let drawn = "";
let drawnRun = null;

export function setUpRun(changed) {
  byId("open").addEventListener("change", (event) => { state.open = event.target.value; changed("open"); });
  const buttons = Object.entries(TABS).map(([key, [label]]) => element("button", {
    type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "panel", "data-tab": key, onclick: () => choose(key),
  }, label));
  byId("tabs").replaceChildren(...buttons);
  byId("tabs").addEventListener("keydown", moveBetweenTabs);
  byId("differences").firstElementChild.addEventListener("toggle", drawDifferences);
  markTab();
}

function choose(key) {
  state.tab = key;
  markTab();
  refreshRun(true);
}

function moveBetweenTabs(event) {
  const keys = Object.keys(TABS);
  const now = keys.indexOf(state.tab);
  const moves = { ArrowRight: now + 1, ArrowLeft: now - 1 + keys.length, Home: 0, End: keys.length - 1 };
  if (!(event.key in moves)) return;
  event.preventDefault();
  choose(keys[moves[event.key] % keys.length]);
  byId(`tab-${state.tab}`).focus();
}

function markTab() {
  for (const button of byId("tabs").children) {
    const isChosen = button.dataset.tab === state.tab;
    button.setAttribute("aria-selected", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
}

export function drawRunChoice() {
  const options = allRows().map((row) => [row.id, row.name]).sort((a, b) => (a[1] < b[1] ? -1 : 1));
  setOptions(byId("open"), options.length ? options : [["", "no run"]], state.open ?? "");
}

function isSeen(node) {
  const { top, bottom } = node.getBoundingClientRect();
  return top < innerHeight && bottom > 0;
}

// Draws again only what differs, so that what is being read, selected or played stays, and nothing that nobody sees.
export async function refreshRun(always) {
  const { open, tab } = state;
  byId("run").hidden = !open;
  if (!open || (!always && open === drawnRun && !isSeen(byId("run")))) return;
  const needsTimeline = tab === "timeline" || tab === "environments";
  const [about, timeline] = await Promise.all([askDetails(open), needsTimeline ? askTimeline(open) : null]);
  if (open !== state.open || tab !== state.tab) return;
  drawRunChoice();
  const now = JSON.stringify([open, tab, needsTimeline ? timeline : { ...about, row: about.row.state }]);
  if (!always && now === drawn) return;
  [drawn, drawnRun] = [now, open];
  const scrolled = byId("panel").querySelector(".scroll")?.scrollTop ?? 0;
  byId("panel").replaceChildren(...TABS[tab][1](about, timeline));
  const scroll = byId("panel").querySelector(".scroll");
  if (scroll) scroll.scrollTop = scrolled;
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "–");
  const fact = ([name, value]) => element("div", { class: String(value).length > LONG_FACT ? "long" : "" },
    element("dt", {}, name), element("dd", {}, value));
  return element("dl", { class: "facts" }, ...known.map(fact));
}

function overviewPanel(about) {
  const { row, result } = about;
  const warnings = about.warnings.length
    ? [element("h3", {}, "Warnings"), element("ul", { class: "warnings" }, ...about.warnings.map((text) => element("li", {}, text)))]
    : [];
  return [
    facts([
      ["State", row.state], ["Environment", row.env], ["Algorithm", row.algorithm], ["Schedule", row.schedule],
      ["Seed", row.seed], ["Steps", whole(row.step)], ["Updates", whole(about.num_updates)], ["Return", compact(row.return)],
      ["Steps/s", whole(row.fps)], ["Lag", compact(row.lag)], ["Restarts", compact(row.restarts)],
      ["Time", typeof result?.seconds === "number" ? duration(result.seconds) : null], ["Folder", about.path],
    ]),
    ...warnings,
    element("h3", {}, "Digest and how to reproduce it"),
    ...commandLines(about),
    element("details", {}, element("summary", {}, "Computed by (fingerprint)"), pre(about.fingerprint)),
  ];
}

function commandLines(about) {
  const lines = about.digest
    ? [["digest", about.digest, "Equal digests, equal bits."]]
    : [["digest", null, "The run has finished no update yet."]];
  if (about.commands.reproduce) {
    lines.push(["reproduce", about.commands.reproduce, "Trains again with the same settings, into a new folder."]);
    lines.push(["compare", about.commands.compare, "Says whether both are identical, or where they part."]);
  } else lines.push(["command", null, "The folder's name has characters that a command cannot be copied with."]);
  return lines.map(([what, text, meaning]) => element("div", { class: "command" },
    element("span", { class: "muted" }, meaning),
    ...(text ? [element("code", { "data-what": what }, text), copyButton(text, what)] : [])));
}

function pre(document) {
  return element("pre", { tabIndex: 0 }, document === null ? "There is none, or it cannot be read." : JSON.stringify(document, null, 2));
}

function settingsPanel(about) {
  const rows = Object.entries(about.settings).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)));
  return [
    element("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Settings" }, element("table", { class: "settings" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Setting"), element("th", { scope: "col" }, "Value"))),
      element("tbody", {}, ...rows))),
    element("details", {}, element("summary", {}, "config.json"), pre(about.config)),
  ];
}

function evaluationPanel(about) {
  if (!about.evaluations.length) {
    return [element("p", { class: "muted" }, "No evaluations beside training. Ask for them with --eval-every STEPS.")];
  }
  const names = ["step", "eval/mean_reward", "eval/std_reward", "eval/mean_ep_length", "episodes", "version"];
  const heads = ["Steps", "Mean return", "Std", "Mean length", "Episodes", "Version"];
  const best = Math.max(...about.evaluations.map(({ numbers }) => numbers["eval/mean_reward"] ?? -Infinity));
  const lines = [...about.evaluations].reverse().map(({ numbers }) => element("tr", {}, ...names.map((name, i) => {
    const isBest = i === 1 && numbers[name] === best;
    return element("td", { class: "number" }, (i === 0 ? whole(numbers[name]) : compact(numbers[name])) + (isBest ? " ★ best" : ""));
  })));
  return [element("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Evaluations" }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col", class: "number" }, head)))),
    element("tbody", {}, ...lines)))];
}

function videosPanel(about) {
  if (!about.videos.length) {
    return [element("p", { class: "muted" }, "No videos. Make one with htsrl record RUN_DIR.")];
  }
  return [element("div", { class: "videos" }, ...about.videos.map((name, i) => {
    const address = videoAddress(about.id, i);
    const shown = name.toLowerCase().endsWith(".gif")
      ? element("img", { src: address, alt: name, loading: "lazy" })
      : element("video", { src: address, controls: true, preload: "metadata", playsInline: true });
    return element("figure", {}, shown, element("figcaption", { class: "muted" }, name));
  }))];
}

export function drawDifferences() {
  if (!byId("differences").firstElementChild.open) return;
  const drawn = drawnRows();
  const rows = drawn.slice(0, MAX_COMPARED);
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.settings)))]
    .filter((name) => rows.some((row) => row.settings[name] !== rows[0].settings[name]));
  const place = byId("differences").querySelector(".scroll");
  if (rows.length < 2 || !names.length) {
    const text = rows.length < 2 ? "Select two runs or more." : "Their settings are the same.";
    place.replaceChildren(element("p", { class: "muted" }, text));
    return;
  }
  const head = element("tr", {}, element("th", { scope: "col" }, "Setting"), ...rows.map((row) => element("th", { scope: "col" }, row.name)));
  const lines = names.map((name) => element("tr", {}, element("th", { scope: "row" }, name), ...rows.map((row) => element("td", {}, row.settings[name] ?? "–"))));
  const note = drawn.length > MAX_COMPARED ? element("p", { class: "muted" }, `The first ${MAX_COMPARED} are compared.`) : "";
  place.replaceChildren(note, element("table", { class: "settings" }, element("thead", {}, head), element("tbody", {}, ...lines)));
}
