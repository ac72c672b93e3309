// A line chart on a canvas: axes, lines, bands, a crosshair for pointer and keyboard, zoom by dragging.

import { element } from "./dom.js";
import { compact, ticks } from "./format.js";
import { indexAfter } from "./statistics.js";
import { colorOf } from "./theme.js";

const MARGIN = { left: 54, right: 14, top: 10, bottom: 26 };
const MAX_READINGS = 12;
const MAX_BANDS = 24;

export class LineChart {
  constructor(label, formatX) {
    this.formatX = formatX;
    this.label = label;
    this.series = [];
    this.numLines = 0;
    this.zoom = null;
    this.cursor = null;
    this.range = { x: [0, 1], y: [0, 1] };
    this.inner = { width: 1, height: 1 };
    this.frame = null;
    this.isSeen = false;
    this.isPainted = false;
    this.canvas = element("canvas", { tabIndex: 0, role: "img" });
    this.tip = element("div", { class: "tip", hidden: true, role: "status" });
    this.node = element("div", { class: "plot" }, this.canvas, this.tip);
    new ResizeObserver(() => this.draw()).observe(this.node);
    new IntersectionObserver(([entry]) => { this.isSeen = entry.isIntersecting; this.draw(); }, { rootMargin: "200px" }).observe(this.node);
    this.listen();
  }

  show(series, formatX) {
    this.series = series.filter((one) => one.xs.length > 0);
    this.numLines = this.series.filter((one) => !one.faint).length;
    this.formatX = formatX;
    const said = this.series.filter((one) => !one.faint).slice(0, MAX_READINGS)
      .map((one) => `${one.name} ${compact(lastOf(one.ys))}`);
    this.canvas.setAttribute("aria-label", `${this.label()}. ${said.join("; ") || "no data"}`);
    this.draw();
  }

  // Of more lines than these, bands would cover one another.
  get hasBands() {
    return this.numLines <= MAX_BANDS;
  }

  listen() {
    const xOf = (event) => this.fromPixel(event.clientX - this.canvas.getBoundingClientRect().left);
    let start = null;
    this.canvas.addEventListener("pointerdown", (event) => { start = xOf(event); });
    this.canvas.addEventListener("pointermove", (event) => {
      this.cursor = xOf(event);
      this.dragged = start !== null && event.buttons ? [start, this.cursor] : null;
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => {
      if (this.dragged && Math.abs(this.toPixel(this.dragged[0]) - this.toPixel(this.dragged[1])) > 8) {
        this.zoom = [...this.dragged].sort((a, b) => a - b);
      }
      start = this.dragged = null;
      this.draw();
    });
    for (const name of ["pointerleave", "blur"]) {
      this.canvas.addEventListener(name, () => { this.cursor = this.dragged = start = null; this.draw(); });
    }
    this.canvas.addEventListener("dblclick", () => this.unzoom());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  unzoom() {
    this.zoom = null;
    this.draw();
  }

  key(event) {
    const { x } = this.range;
    const step = (x[1] - x[0]) / (event.shiftKey ? 10 : 50);
    const now = this.cursor ?? x[1];
    const moves = { ArrowLeft: now - step, ArrowRight: now + step, Home: x[0], End: x[1] };
    if (event.key in moves) this.cursor = Math.min(x[1], Math.max(x[0], moves[event.key]));
    else if (event.key === "Escape") { this.zoom = null; this.cursor = null; }
    else return;
    event.preventDefault();
    this.draw();
  }

  ranges() {
    const xs = this.series.flatMap((one) => [one.xs[0], lastOf(one.xs)]);
    const x = this.zoom ?? (xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1]);
    let [low, high] = [Infinity, -Infinity];
    for (const one of this.series) {
      const [begin, end] = [Math.max(0, indexAfter(one.xs, x[0]) - 1), indexAfter(one.xs, x[1])];
      for (let i = begin; i <= end; i += 1) {
        const value = one.ys[i];
        if (value === null) continue;
        const hasBand = this.hasBands && one.lows && !one.faint;
        low = Math.min(low, hasBand ? one.lows[i] ?? value : value);
        high = Math.max(high, hasBand ? one.highs[i] ?? value : value);
      }
    }
    if (low > high) [low, high] = [0, 1];
    const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return { x: x[0] === x[1] ? [x[0] - 1, x[1] + 1] : x, y: [low - room, high + room] };
  }

  toPixel(x) {
    const range = this.range.x;
    return MARGIN.left + ((x - range[0]) / (range[1] - range[0])) * this.inner.width;
  }

  fromPixel(pixel) {
    const range = this.range.x;
    const x = range[0] + ((pixel - MARGIN.left) / this.inner.width) * (range[1] - range[0]);
    return Math.min(range[1], Math.max(range[0], x));
  }

  toPixelY(y) {
    const range = this.range.y;
    return MARGIN.top + (1 - (y - range[0]) / (range[1] - range[0])) * this.inner.height;
  }

  // However often it is asked for, once for the next picture; where nobody sees it, only for the first time.
  draw() {
    if (!this.isSeen && this.isPainted) return;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.node;
    if (!width || !height) return;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    this.inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    this.range = this.ranges();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    this.tip.hidden = true;
    if (!this.series.length) return;
    this.drawAxes(pen, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, MARGIN.top, this.inner.width, this.inner.height);
    pen.clip();
    if (this.hasBands) for (const one of this.series) this.drawBand(pen, one);
    for (const one of this.series) this.drawLine(pen, one);
    this.drawDragged(pen);
    pen.restore();
    this.drawCursor(pen);
    this.isPainted = true;
  }

  drawAxes(pen, width, height) {
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colorOf("--muted");
    pen.strokeStyle = colorOf("--line");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(...this.range.y, Math.max(2, this.inner.height / 46))) {
      const y = Math.round(this.toPixelY(tick)) + 0.5;
      stroke(pen, [[MARGIN.left, y], [width - MARGIN.right, y]]);
      pen.fillText(compact(tick), MARGIN.left - 8, y);
    }
    pen.textBaseline = "top";
    for (const tick of ticks(...this.range.x, Math.max(2, this.inner.width / 110))) {
      const x = this.toPixel(tick);
      pen.textAlign = x > width - 40 ? "right" : "center";
      pen.fillText(this.formatX(tick), Math.min(x, width - MARGIN.right), height - MARGIN.bottom + 8);
    }
  }

  drawBand(pen, one) {
    if (!one.lows || one.faint) return;
    pen.globalAlpha = 0.18;
    pen.fillStyle = colorOf(one.color);
    pen.beginPath();
    one.xs.forEach((x, i) => pen.lineTo(this.toPixel(x), this.toPixelY(one.highs[i] ?? one.ys[i])));
    for (let i = one.xs.length - 1; i >= 0; i -= 1) {
      pen.lineTo(this.toPixel(one.xs[i]), this.toPixelY(one.lows[i] ?? one.ys[i]));
    }
    pen.fill();
    pen.globalAlpha = 1;
  }

  drawLine(pen, one) {
    pen.strokeStyle = pen.fillStyle = colorOf(one.color);
    pen.globalAlpha = one.faint ? 0.28 : 1;
    pen.lineWidth = one.faint || !this.hasBands ? 1 : 1.75;
    pen.lineJoin = "bevel";
    pen.beginPath();
    let isDown = false;
    one.xs.forEach((x, i) => {
      if (one.ys[i] === null) { isDown = false; return; }
      const [px, py] = [this.toPixel(x), this.toPixelY(one.ys[i])];
      if (isDown) pen.lineTo(px, py);
      else pen.moveTo(px, py);
      isDown = true;
    });
    pen.stroke();
    if (one.xs.length === 1 && one.ys[0] !== null) {
      pen.beginPath();
      pen.arc(this.toPixel(one.xs[0]), this.toPixelY(one.ys[0]), 3, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  drawDragged(pen) {
    if (!this.dragged) return;
    const [from, to] = this.dragged.map((x) => this.toPixel(x));
    pen.globalAlpha = 0.15;
    pen.fillStyle = colorOf("--accent");
    pen.fillRect(Math.min(from, to), MARGIN.top, Math.abs(to - from), this.inner.height);
    pen.globalAlpha = 1;
  }

  drawCursor(pen) {
    this.tip.hidden = this.cursor === null || !this.series.length;
    if (this.tip.hidden) return;
    const x = this.toPixel(this.cursor);
    pen.strokeStyle = colorOf("--muted");
    stroke(pen, [[x, MARGIN.top], [x, MARGIN.top + this.inner.height]]);
    const readings = [];
    for (const one of this.series.filter((each) => !each.faint)) {
      if (this.cursor < one.xs[0] || this.cursor > lastOf(one.xs)) continue;
      const i = nearest(one.xs, this.cursor);
      if (one.ys[i] === null) continue;
      pen.fillStyle = colorOf(one.color);
      pen.beginPath();
      pen.arc(this.toPixel(one.xs[i]), this.toPixelY(one.ys[i]), 3.5, 0, 7);
      pen.fill();
      readings.push({ one, i });
    }
    readings.sort((a, b) => b.one.ys[b.i] - a.one.ys[a.i]);
    this.tip.replaceChildren(
      element("div", { class: "muted" }, this.formatX(this.cursor)),
      ...readings.slice(0, MAX_READINGS).map(({ one, i }) => reading(one, i)),
      readings.length > MAX_READINGS ? element("div", { class: "muted" }, `and ${readings.length - MAX_READINGS} more`) : "",
    );
    const isRight = x > this.node.clientWidth / 2;
    this.tip.style.left = isRight ? "auto" : `${x + 14}px`;
    this.tip.style.right = isRight ? `${this.node.clientWidth - x + 14}px` : "auto";
  }
}

function reading(one, i) {
  const range = one.lows ? ` (${compact(one.lows[i])} to ${compact(one.highs[i])}${one.counts ? `, n=${one.counts[i]}` : ""})` : "";
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = `var(${one.color})`;
  return element("div", {}, swatch, element("b", {}, compact(one.ys[i])), `${range} `, element("span", { class: "muted" }, one.name));
}

function stroke(pen, points) {
  pen.beginPath();
  points.forEach(([x, y]) => pen.lineTo(x, y));
  pen.stroke();
}

function nearest(xs, x) {
  const right = indexAfter(xs, x);
  return right > 0 && x - xs[right - 1] < xs[right] - x ? right - 1 : right;
}

function lastOf(values) {
  return values[values.length - 1];
}
