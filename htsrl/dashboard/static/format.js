// Numbers, times and names as people read them.

const MISSING = "–";
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 }); // made once: that takes longer than many numbers

export function compact(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  const size = Math.abs(value);
  if (size >= 1e12) return value.toExponential(2);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return trimmed(value / (letter === "k" ? 1e3 : unit), 3) + letter;
  }
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return trimmed(value, 4);
}

function trimmed(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

export function whole(value) {
  return value === null || value === undefined ? MISSING : WHOLE.format(value);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return MISSING;
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${trimmed(seconds * 1e6, 3)} µs`;
  if (size < 1) return `${trimmed(seconds * 1e3, 3)} ms`;
  if (size < 100) return `${trimmed(seconds, 3)} s`;
  if (size < 5400) return `${trimmed(seconds / 60, 3)} min`;
  return `${trimmed(seconds / 3600, 3)} h`;
}

export function age(timestamp) {
  if (!timestamp) return MISSING;
  const seconds = Math.max(0, Date.now() / 1000 - timestamp);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

// Evenly spaced round numbers over a range.
export function ticks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step);
  const found = [];
  for (let i = first; i * step <= high + step * 1e-9 && found.length < 50; i += 1) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}
