// The table of all runs: filter, sort, group, select. Rows stay the same elements, so that focus does.

import { byId, element, setOptions, setText } from "./dom.js";
import { age, compact, whole } from "./format.js";
import {
  ALL_BUT_SEED, adjustSelection, allRows, colorIndex, drawnRows, groupNames, groupOf, groups, releaseColors, shownRows, state,
} from "./state.js";
import { curveColor } from "./theme.js";

const MAX_ROWS = 150;
const ROWS_AT_ONCE = 30; // more than are seen; the others follow, for the browser takes longest over them
const PICTURE_MILLISECONDS = 30;
const COLUMNS = [
  { key: "name", label: "Run" },
  { key: "state", label: "State" },
  { key: "env", label: "Environment", wide: true },
  { key: "algorithm", label: "Algorithm", wide: true },
  { key: "schedule", label: "Schedule", wide: true },
  { key: "seed", label: "Seed", number: true, wide: true },
  { key: "step", label: "Steps", number: true },
  { key: "return", label: "Return", number: true, text: (row) => compact(row.return) },
  { key: "evaluation", label: "Eval", number: true, wide: true, text: (row) => compact(row.evaluation) },
  { key: "fps", label: "Steps/s", number: true, wide: true, text: (row) => whole(row.fps) },
  { key: "lag", label: "Lag", number: true, wide: true, text: (row) => compact(row.lag) },
  { key: "restarts", label: "Restarts", number: true, wide: true, text: (row) => compact(row.restarts) },
  { key: "updated", label: "Updated", number: true, wide: true, text: (row) => age(row.updated) },
];
const lines = new Map();
let changed = () => {};
let showsAll = false;
let following = null;

export function setUpTable(onChange) {
  changed = onChange;
  byId("table").tHead.append(headLine());
  byId("filter").addEventListener("input", (event) => { state.filter = event.target.value; adjustSelection(); changed("runs"); });
  byId("group").addEventListener("change", (event) => { state.group = event.target.value; adjustSelection(); changed("runs"); });
  byId("more").addEventListener("click", () => { showsAll = true; changed("table"); });
  byId("select-shown").addEventListener("click", () => choose(shownRows().map((row) => row.id), true));
  byId("select-none").addEventListener("click", () => choose([...state.selected], false));
}

function headLine() {
  const cells = COLUMNS.map((column) => {
    const button = element("button", { type: "button", onclick: () => sortBy(column.key) }, column.label);
    return element("th", { class: classOf(column), scope: "col", "data-key": column.key }, button);
  });
  return element("tr", {}, element("th", { scope: "col" }, element("span", { class: "hidden" }, "Selected")), ...cells);
}

function sortBy(key) {
  const column = COLUMNS.find((each) => each.key === key);
  const descending = state.sort.key === key ? !state.sort.descending : Boolean(column.number);
  state.sort = { key, descending };
  changed("table");
}

function choose(ids, isSelected) {
  state.userChoseRuns = true;
  for (const id of ids) {
    if (isSelected) state.selected.add(id);
    else state.selected.delete(id);
  }
  changed("runs");
}

export function drawTable() {
  const rows = shownRows();
  const drawn = drawnRows();
  releaseColors(drawn.map((row) => groupOf(row)));
  drawHead();
  drawGroupChoice();
  const total = allRows().length;
  const hidden = state.selected.size - drawn.length;
  const counts = `${rows.length === total ? total : `${rows.length} of ${total}`}, ${drawn.length} selected`;
  setText(byId("count"), hidden ? `${counts}, ${hidden} more hidden by the filter` : counts);
  byId("empty").hidden = rows.length > 0;
  setText(byId("empty"), total ? "No run matches the filter." : "No runs here yet. A folder with a config.json is one; this page finds it by itself.");
  const wanted = state.group ? groupedLines(rows) : rows.map((row) => () => runLine(row));
  const shown = showsAll ? wanted : wanted.slice(0, MAX_ROWS);
  byId("more").hidden = shown.length === wanted.length;
  forgetLines(rows);
  drawLines(shown, 0);
}

// Each of them made or updated, and put into its place where it is not there already.
function drawLines(shown, begin) {
  clearTimeout(following);
  const body = byId("table").tBodies[0];
  const end = Math.min(shown.length, begin + ROWS_AT_ONCE);
  for (let i = begin; i < end; i += 1) {
    const line = shown[i]();
    if (body.children[i] !== line) body.insertBefore(line, body.children[i] ?? null);
  }
  if (end < shown.length) following = setTimeout(() => drawLines(shown, end), PICTURE_MILLISECONDS);
  else while (body.children.length > end) body.lastChild.remove();
}

function drawHead() {
  for (const cell of byId("table").tHead.querySelectorAll("[data-key]")) {
    const isSorted = cell.dataset.key === state.sort.key;
    if (isSorted) cell.setAttribute("aria-sort", state.sort.descending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
}

function drawGroupChoice() {
  const values = new Map();
  for (const row of allRows()) {
    for (const [name, value] of Object.entries(row.settings)) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(value);
    }
  }
  const differing = [...values].filter(([, seen]) => seen.size > 1).map(([name]) => [name, name]);
  setOptions(byId("group"), [["", "nothing"], [ALL_BUT_SEED, "all settings but the seed"], ...differing], state.group);
}

function groupedLines(rows) {
  const found = groups(rows);
  const names = groupNames(found);
  return [...found].flatMap(([key, members]) => [
    () => groupLine(key, members, names.get(key)), ...members.map((row) => () => runLine(row)),
  ]);
}

function groupLine(key, members, name) {
  const line = kept(`group ${key}`, () => {
    const box = element("input", { type: "checkbox" });
    const made = element("tr", { class: "group" }, element("td", {}, box), element("th", { scope: "rowgroup", colSpan: COLUMNS.length }));
    box.addEventListener("change", () => choose(made.memberIds, box.checked));
    return made;
  });
  line.memberIds = members.map((row) => row.id);
  const count = line.memberIds.filter((id) => state.selected.has(id)).length;
  const box = line.querySelector("input");
  box.checked = count === members.length;
  box.indeterminate = count > 0 && count < members.length;
  box.setAttribute("aria-label", `Select the group ${name}`);
  const isPart = box.indeterminate ? `${count} of ` : "";
  const runs = `${members.length} ${members.length === 1 ? "run" : "runs"}`;
  setText(line.lastChild, `${name}  (${isPart}${runs}${isPart && " selected"})`);
  return line;
}

function runLine(row) {
  const line = kept(row.id, () => newRunLine(row.id));
  const isSelected = state.selected.has(row.id);
  const box = line.querySelector("input");
  if (box.checked !== isSelected) box.checked = isSelected;
  box.setAttribute("aria-label", `Select ${row.name}`);
  line.querySelector(".swatch").style.background = isSelected ? `var(${curveColor(colorIndex(groupOf(row)))})` : "transparent";
  line.classList.toggle("open", state.open === row.id);
  COLUMNS.forEach((column, i) => drawCell(line.children[i + 1], column, row));
  return line;
}

function newRunLine(id) {
  const box = element("input", { type: "checkbox", onchange: (event) => choose([id], event.target.checked) });
  const cells = COLUMNS.map((column) => {
    if (column.key !== "name") return element("td", { class: classOf(column), "data-key": column.key });
    const open = () => { state.open = id; changed("open"); };
    return element("th", { scope: "row" }, element("button", { type: "button", class: "name", title: "Show this run below", onclick: open }));
  });
  return element("tr", { "data-run": id }, element("td", {}, element("label", { class: "pick" }, box, element("span", { class: "swatch" }))), ...cells);
}

function drawCell(cell, column, row) {
  if (column.key === "name") {
    setText(cell.firstChild, row.name);
    return;
  }
  if (column.key === "state") {
    cell.className = `state ${row.state}`;
    setText(cell, row.waits || row.notes.length ? `${row.state} ⚠` : row.state);
    cell.title = [row.stop_reason, row.waits, ...row.notes].filter(Boolean).join("\n");
    return;
  }
  if (column.key === "step") drawProgress(cell, row);
  else setText(cell, column.text ? column.text(row) : row[column.key] ?? "–");
}

function drawProgress(cell, row) {
  if (!cell.children.length) cell.append(element("span"), element("span", { class: "wide muted" }));
  setText(cell.children[0], compact(row.step ?? 0));
  setText(cell.children[1], row.total_steps ? ` / ${compact(row.total_steps)}` : "");
  const share = row.total_steps ? Math.min(1, (row.step ?? 0) / row.total_steps) : 0;
  cell.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
  cell.classList.add("progress");
}

function classOf(column) {
  return [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim();
}

function kept(key, make) {
  if (!lines.has(key)) lines.set(key, make());
  return lines.get(key);
}

function forgetLines(rows) {
  if (lines.size <= 2 * rows.length + 500) return;
  const present = new Set(rows.map((row) => row.id));
  for (const key of [...lines.keys()]) if (!present.has(key)) lines.delete(key);
}
