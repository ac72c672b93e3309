// What the page knows and what its user has chosen; modules read it and `main.js` redraws what changed.

import { NUM_COLORS } from "./theme.js";

export const state = {
  rows: new Map(),
  ids: [],
  generation: 0,
  selected: new Set(),
  userChoseRuns: false,
  filter: "",
  sort: { key: "started", descending: true },
  group: "",
  axis: "step",
  smoothing: 0,
  open: null,
  tab: "overview",
  window: 5,
};

export const ALL_BUT_SEED = "*";

const MAX_GROUPED_AT_FIRST = 100;
const colors = new Map();

export function takeRows(answer) {
  for (const row of answer.rows) state.rows.set(row.id, row);
  state.ids = answer.ids;
  state.generation = answer.generation;
  const present = new Set(answer.ids);
  for (const id of [...state.rows.keys()]) if (!present.has(id)) state.rows.delete(id);
  for (const id of [...state.selected]) if (!present.has(id)) state.selected.delete(id);
  if (!state.userChoseRuns) selectAtFirst();
  if (!present.has(state.open)) state.open = null;
  state.open ??= newestFirst()[0]?.id ?? null;
}

// After the filter or the grouping was changed: a group that is drawn is drawn whole, for its mean would else be another.
export function adjustSelection() {
  if (!state.userChoseRuns) selectAtFirst();
  else if (state.group) {
    for (const members of groups(shownRows()).values()) {
      if (members.some((row) => state.selected.has(row.id))) members.forEach((row) => state.selected.add(row.id));
    }
  }
}

// Until the user chooses: the newest groups of what is shown, whole, and no more lines than can be told apart.
function selectAtFirst() {
  const isShown = new Set(shownRows().map((row) => row.id));
  const rows = newestFirst().filter((row) => isShown.has(row.id));
  const maxRuns = state.group ? MAX_GROUPED_AT_FIRST : NUM_COLORS;
  const newest = [...groups(rows, state.group || ALL_BUT_SEED).values()].slice(0, NUM_COLORS);
  state.selected = new Set();
  for (const members of newest) {
    if (state.selected.size && state.selected.size + members.length > maxRuns) break;
    members.slice(0, maxRuns).forEach((row) => state.selected.add(row.id));
  }
}

function newestFirst() {
  return [...state.rows.values()].sort((a, b) => (b.started ?? 0) - (a.started ?? 0) || (a.name < b.name ? -1 : 1));
}

export function allRows() {
  return state.ids.map((id) => state.rows.get(id)).filter(Boolean);
}

function filteredRows() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  return allRows().filter((row) => words.every((word) => matches(row, word)));
}

export function shownRows() {
  const rows = filteredRows();
  const { key, descending } = state.sort;
  const sign = descending ? -1 : 1;
  return rows.sort((a, b) => sign * order(a[key], b[key]) || order(a.name, b.name));
}

function matches(row, word) {
  const at = word.indexOf("=");
  if (at > 0) {
    const [name, value] = [word.slice(0, at), word.slice(at + 1)];
    return Object.entries(row.settings).some(
      ([setting, text]) => (setting === name || setting.endsWith(`.${name}`)) && text.toLowerCase() === value,
    );
  }
  return [row.name, row.state, row.env, row.algorithm, row.schedule].some((text) => text?.toLowerCase().includes(word));
}

// Missing values come last in rising order; seeds are numbers although they are text.
function order(a, b) {
  const [x, y] = [a, b].map((value) => (typeof value === "string" && value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value));
  if (x === y) return 0;
  if (x === null || x === undefined) return 1;
  if (y === null || y === undefined) return -1;
  if (typeof x === "number" && typeof y === "number") return x - y;
  return String(x).localeCompare(String(y), "en", { numeric: true });
}

const keysWithoutSeed = new WeakMap();

export function groupOf(row, by = state.group) {
  if (!by) return row.id;
  if (by !== ALL_BUT_SEED) return row.settings[by] ?? "(not set)";
  if (!keysWithoutSeed.has(row)) {
    const rest = Object.entries(row.settings).filter(([name]) => name !== "seed");
    keysWithoutSeed.set(row, JSON.stringify(rest.sort(([a], [b]) => (a < b ? -1 : 1))));
  }
  return keysWithoutSeed.get(row);
}

export function groups(rows, by = state.group) {
  const found = new Map();
  for (const row of rows) {
    const key = groupOf(row, by);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(row);
  }
  return found;
}

// By key, in words: what a group is and what tells it from the others.
export function groupNames(found) {
  const firsts = [...found.values()].map((members) => members[0]);
  const telling = tellingSettings(firsts);
  return new Map([...found].map(([key, [first]]) => {
    if (state.group !== ALL_BUT_SEED) return [key, `${state.group} = ${key}`];
    const values = telling.map((name) => `${name.split(".").pop()}=${first.settings[name] ?? "(not set)"}`);
    return [key, [first.algorithm, first.env, first.schedule, ...values].filter(Boolean).join(" · ")];
  }));
}

// Settings with several values. Those of an algorithm tell only runs of the same algorithm apart.
function tellingSettings(rows) {
  const firstOf = new Map();
  for (const row of rows) if (!firstOf.has(row.algorithm)) firstOf.set(row.algorithm, row);
  const differ = (name) => rows.some((row) => {
    const other = name.startsWith("algorithm.") ? firstOf.get(row.algorithm) : rows[0];
    return row.settings[name] !== other.settings[name];
  });
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.settings)))];
  return names.filter((name) => !["seed", "env", "algorithm.name", "schedule"].includes(name) && differ(name)).slice(0, 3);
}

// By name, so that a run has the same colour on every page that shows it; another one only where that is taken.
export function colorIndex(key) {
  if (!colors.has(key)) {
    const taken = new Set(colors.values());
    const own = hash(key) % NUM_COLORS;
    const choices = Array.from({ length: NUM_COLORS }, (_, i) => (own + i) % NUM_COLORS);
    colors.set(key, choices.find((index) => !taken.has(index)) ?? own);
  }
  return colors.get(key);
}

function hash(text) {
  let sum = 0;
  for (const letter of text) sum = (31 * sum + letter.codePointAt(0)) >>> 0;
  return sum;
}

// Colours of what is drawn no more can be given again.
export function releaseColors(keys) {
  const used = new Set(keys);
  for (const key of [...colors.keys()]) if (!used.has(key)) colors.delete(key);
}

// What is drawn: runs that are selected and that the filter shows.
export function drawnRows() {
  return filteredRows().filter((row) => state.selected.has(row.id));
}
