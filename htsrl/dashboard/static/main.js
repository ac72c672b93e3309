// Asks the server again and again while the page is looked at, and redraws what changed.

import { askRows } from "./api.js";
import { drawCurves, refreshCurves, setUpCurves } from "./curves.js";
import { drawDifferences, drawRunChoice, refreshRun, setUpRun } from "./details.js";
import { byId, setText } from "./dom.js";
import { state, takeRows } from "./state.js";
import { refreshSweeps, setUpSweeps } from "./sweeps.js";
import { drawTable, setUpTable } from "./table.js";
import { followTheme } from "./theme.js";

const POLL_MILLISECONDS = 2000;
const MAX_POLL_MILLISECONDS = 6000;
const REST = 20; // times as long as a poll took: watching shall not take the processor from what is watched
let polls = 0;

function changed(what) {
  drawTable();
  if (what === "runs") {
    drawCurves();
    drawDifferences();
    refreshCurves().catch(tell);
  }
  if (what === "open") {
    refreshRun(true).catch(tell);
    byId("run").scrollIntoView({ block: "nearest", behavior: isCalm() ? "auto" : "smooth" });
  }
}

function isCalm() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

async function poll() {
  try {
    const before = state.generation;
    const answer = await askRows(state.generation);
    takeRows(answer);
    setText(byId("root"), answer.root);
    byId("root").title = answer.root;
    if (answer.note) tell(new Error(answer.note));
    drawTable();
    if (state.generation !== before || polls === 0) {
      drawRunChoice();
      drawDifferences();
    }
    await Promise.all([refreshCurves(), refreshRun(false), refreshSweeps(answer.sweeps)]);
    const running = [...state.rows.values()].filter((row) => row.state === "running").length;
    setText(byId("live"), running ? `live, ${running} running` : "live");
    byId("live").className = "live on";
    if (!answer.note) byId("problem").hidden = true;
  } catch (error) {
    byId("live").className = "live";
    setText(byId("live"), "not connected");
    tell(error instanceof TypeError ? new Error("the server does not answer; was `htsrl dashboard` ended?") : error);
  }
  polls += 1;
}

function tell(error) {
  byId("problem").hidden = false;
  setText(byId("problem"), String(error.message ?? error));
}

async function pollForEver() {
  for (;;) {
    const begin = performance.now();
    if (!document.hidden || polls === 0) await poll();
    const rest = Math.min(MAX_POLL_MILLISECONDS, Math.max(POLL_MILLISECONDS, REST * (performance.now() - begin)));
    await new Promise((resolve) => { setTimeout(resolve, rest); });
  }
}

setUpTable(changed);
setUpCurves();
setUpSweeps();
setUpRun(changed);
followTheme(() => { drawCurves(); refreshRun(true).catch(tell); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
pollForEver();
