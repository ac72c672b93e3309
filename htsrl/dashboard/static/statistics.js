// Smoothing, and the mean of several runs with its interval. Pure functions of arrays.

// Two-sided 95 % quantiles of Student's t distribution, for 1 to 30 degrees of freedom.
const T_95 = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11,
  2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];

export function tQuantile(degrees) {
  return degrees < 1 ? NaN : T_95[degrees - 1] ?? 1.96 + 2.4 / degrees;
}

// Exponential moving average, without a pull towards zero at the beginning.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let weights = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

// Value at x between two points; null outside.
export function valueAt(xs, ys, x) {
  const last = xs.length - 1;
  if (last < 0 || x < xs[0] || x > xs[last]) return null;
  const right = indexAfter(xs, x);
  if (right === 0 || xs[right] === x) return ys[right];
  const [left, share] = [right - 1, (x - xs[right - 1]) / (xs[right] - xs[right - 1])];
  return ys[left] === null || ys[right] === null ? null : ys[left] + share * (ys[right] - ys[left]);
}

// First index whose x is not smaller; the last one where there is none.
export function indexAfter(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Points of the means, with 95 % t-intervals, over those curves that reach each x; none where fewer than two do.
export function meanOverRuns(curves, count = 200) {
  const known = curves.filter((curve) => curve.xs.length > 0);
  const result = { xs: [], ys: [], lows: [], highs: [], counts: [] };
  if (known.length < 2) return result;
  const begin = Math.min(...known.map((curve) => curve.xs[0]));
  const ends = known.map((curve) => curve.xs[curve.xs.length - 1]).sort((a, b) => b - a);
  const longest = Math.max(...known.map((curve) => curve.xs.length));
  const points = grid(begin, ends[1], Math.min(count, Math.max(2, longest)), ends);
  for (const x of points) {
    const values = known.map((curve) => valueAt(curve.xs, curve.ys, x)).filter((value) => value !== null);
    if (values.length < 2) continue;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1);
    const half = tQuantile(values.length - 1) * Math.sqrt(variance / values.length);
    result.xs.push(x);
    result.ys.push(mean);
    result.lows.push(mean - half);
    result.highs.push(mean + half);
    result.counts.push(values.length);
  }
  return result;
}

// Evenly spaced, and also where a run ends: there its mean changes its members.
function grid(begin, end, count, ends) {
  const even = Array.from({ length: count }, (_, i) => begin + ((end - begin) * i) / Math.max(1, count - 1));
  return [...new Set([...even, ...ends.filter((x) => x < end)])].sort((a, b) => a - b);
}

// In rising order of x, as interpolation needs it; almost always they are.
export function ordered(curve) {
  if (curve.xs.every((x, i) => i === 0 || x >= curve.xs[i - 1])) return curve;
  const order = curve.xs.map((_, i) => i).sort((i, j) => curve.xs[i] - curve.xs[j]);
  const pick = (values) => values && order.map((i) => values[i]);
  return { ...curve, xs: pick(curve.xs), ys: pick(curve.ys), lows: pick(curve.lows), highs: pick(curve.highs) };
}
