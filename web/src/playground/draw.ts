import { type Algorithm, algorithms } from "./algorithms.ts";
import { epoch, type Simulation } from "./simulation.ts";
import type { Look } from "./wasm.ts";

/** The colours of a chart in the current theme. */
export type Palette = Record<(typeof tokens)[number], string>;

/** The design tokens that charts use. */
export const tokens = [
  "surface",
  "surface-2",
  "line",
  "line-strong",
  "text",
  "text-2",
  "accent",
  "accent-soft",
  "allowed",
  "refused",
  "delayed",
] as const;

/** A drawing area in CSS pixels with a horizontal time axis. */
interface Paper {
  c: CanvasRenderingContext2D;
  width: number;
  height: number;
  now: number;
  period: number;
  colours: Palette;
  x: (at: number) => number;
}

/** Periods of the past and of the future in view. */
const past = 2;
const future = 0.75;

function paper(canvas: HTMLCanvasElement, sim: Simulation, colours: Palette): Paper | undefined {
  const c = canvas.getContext("2d");
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!c || width === 0) return undefined;
  const scale = globalThis.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, width, height);
  const { now } = sim;
  const period = sim.settings.period;
  const perMicro = width / ((past + future) * period);
  return { c, width, height, now, period, colours, x: (at) => (at - now + past * period) * perMicro };
}

/** The font of the page, in a size. */
function font(size: number): string {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

/** Round steps for a time axis, in microseconds. */
const nice = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600,
  43200, 86400,
].map((s) => s * 1e6);

function tickEvery(p: Paper): number {
  const shortest = ((past + future) * p.period * 64) / p.width;
  return nice.find((step) => step >= shortest) ?? nice.at(-1)!;
}

function sayTick(at: number, step: number): string {
  const us = at - epoch;
  const s = Math.floor(us / 1e6);
  const rest = step < 1e6 ? (us / 1e6 - s).toFixed(step < 1e5 ? 2 : 1).slice(1) : "";
  const two = (n: number) => String(n).padStart(2, "0");
  if (s >= 3600) return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}${rest}`;
  return `${Math.floor(s / 60)}:${two(s % 60)}${rest}`;
}

/** Draws the shared time axis, with a bracket over the last period. */
export function drawAxis(canvas: HTMLCanvasElement, sim: Simulation, colours: Palette): void {
  const p = paper(canvas, sim, colours);
  if (!p) return;
  const { c } = p;
  c.font = font(11);
  c.textBaseline = "middle";
  c.textAlign = "center";
  const step = tickEvery(p);
  const nowX = p.x(p.now);
  for (let at = Math.ceil((p.now - past * p.period) / step) * step; p.x(at) < p.width; at += step) {
    if (at < epoch || Math.abs(p.x(at) - nowX) < 34 || p.x(at) < 16 || p.x(at) > p.width - 16) continue;
    c.fillStyle = colours["text-2"];
    c.fillText(sayTick(at, step), p.x(at), 9);
  }
  c.fillStyle = colours.text;
  c.font = `600 ${font(11)}`;
  c.fillText("now", nowX, 9);
  // A bracket over the last period.
  const left = p.x(p.now - p.period);
  c.strokeStyle = colours["line-strong"];
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(left + 0.5, 24);
  c.lineTo(left + 0.5, 19.5);
  c.lineTo(nowX - 0.5, 19.5);
  c.lineTo(nowX - 0.5, 24);
  c.stroke();
}

// The parts of a lane, from the top: marks, usage, state.
const marksAt = 20;
const markLength = 13;
const areaTop = 46;
const bandHeight = 22;

/** Draws a lane: its requests, its usage, its state. */
export function drawLane(
  canvas: HTMLCanvasElement,
  sim: Simulation,
  algorithm: Algorithm,
  look: Look,
  colours: Palette,
): void {
  const p = paper(canvas, sim, colours);
  if (!p) return;
  const lane = algorithms.indexOf(algorithm);
  drawGround(p, algorithm, sim);
  drawUse(p, sim, lane, look);
  drawMarks(p, sim, lane);
  drawState(p, algorithm, look, sim);
  drawNow(p, look);
}

function drawGround(p: Paper, algorithm: Algorithm, sim: Simulation): void {
  const { c, colours } = p;
  c.fillStyle = colours["surface-2"];
  c.fillRect(p.x(p.now - p.period), 0, p.x(p.now) - p.x(p.now - p.period), p.height);
  // Window boundaries on the clock, if the algorithm has them.
  const clocked =
    algorithm === "sliding_window" || (algorithm === "fixed_window" && sim.settings.anchor === "clock");
  if (!clocked) return;
  c.strokeStyle = colours["line-strong"];
  c.setLineDash([2, 3]);
  c.lineWidth = 1;
  for (
    let at = Math.ceil((p.now - past * p.period) / p.period) * p.period;
    p.x(at) < p.width;
    at += p.period
  ) {
    const x = Math.round(p.x(at)) + 0.5;
    c.beginPath();
    c.moveTo(x, 0);
    c.lineTo(x, p.height);
    c.stroke();
  }
  c.setLineDash([]);
}

function drawMarks(p: Paper, sim: Simulation, lane: number): void {
  const { c, colours } = p;
  c.strokeStyle = colours.line;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(0, marksAt + 0.5);
  c.lineTo(p.x(p.now), marksAt + 0.5);
  c.stroke();
  const from = p.now - past * p.period;
  for (let i = sim.marks.length - 1; i >= 0; i--) {
    const mark = sim.marks[i]!;
    if (mark.at < from) break;
    const answer = mark.answers[lane]!;
    const x = p.x(mark.at);
    c.fillStyle = answer.allowed ? colours.allowed : colours.refused;
    c.beginPath();
    c.roundRect(x - 1.25, answer.allowed ? marksAt - markLength : marksAt + 1, 2.5, markLength, 1.25);
    c.fill();
    if (answer.verdict === "right") continue;
    // A dot at the end: an exact log would have decided otherwise.
    c.fillStyle = colours.delayed;
    c.beginPath();
    c.arc(x, answer.allowed ? marksAt - markLength - 3.5 : marksAt + markLength + 4.5, 2.25, 0, 2 * Math.PI);
    c.fill();
  }
}

function drawUse(p: Paper, sim: Simulation, lane: number, look: Look): void {
  const { c, colours } = p;
  const bottom = p.height - bandHeight - 8;
  const top = areaTop + 6;
  const full = Math.max(look.capacity, 1);
  const y = (used: number) => bottom - (Math.min(used, full * 1.08) / full) * (bottom - top);
  // The past, and the future without further requests.
  const ahead = Array.from({ length: 121 }, (_, i) => Math.round(p.now + (i / 120) * future * p.period));
  const expected = sim.core.used(lane, ahead).map((used, i) => ({ at: ahead[i]!, used }));
  const seen = sim.samples[lane]!;
  const from = firstFrom(seen, p.now - past * p.period);
  curve(p, seen.slice(from), y, bottom, colours["accent-soft"], colours.accent, []);
  c.globalAlpha = 0.55;
  curve(p, expected, y, bottom, colours["accent-soft"], colours.accent, [3, 3]);
  c.globalAlpha = 1;
  c.strokeStyle = colours["line-strong"];
  c.setLineDash([5, 4]);
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(0, Math.round(y(full)) + 0.5);
  c.lineTo(p.width, Math.round(y(full)) + 0.5);
  c.stroke();
  c.setLineDash([]);
  c.font = font(11);
  c.textAlign = "right";
  c.textBaseline = "bottom";
  c.fillStyle = colours["text-2"];
  c.fillText(
    `${algorithms[lane]!.endsWith("bucket") ? "burst" : "limit"} ${look.capacity}`,
    p.width - 6,
    y(full) - 1,
  );
}

function curve(
  p: Paper,
  points: readonly { at: number; used: number }[],
  y: (used: number) => number,
  bottom: number,
  fill: string,
  stroke: string,
  dash: number[],
): void {
  if (points.length < 2) return;
  const { c } = p;
  c.beginPath();
  c.moveTo(p.x(points[0]!.at), bottom);
  for (const point of points) c.lineTo(p.x(point.at), y(point.used));
  c.lineTo(p.x(points.at(-1)!.at), bottom);
  c.closePath();
  c.fillStyle = fill;
  c.fill();
  c.beginPath();
  for (const point of points) c.lineTo(p.x(point.at), y(point.used));
  c.strokeStyle = stroke;
  c.lineWidth = 1.75;
  c.lineJoin = "round";
  c.setLineDash(dash);
  c.stroke();
  c.setLineDash([]);
}

/** The index of the last sample at or before a time, or 0. */
export function firstFrom(samples: readonly { at: number }[], at: number): number {
  let low = 0;
  let high = samples.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (samples[middle]!.at < at) low = middle + 1;
    else high = middle;
  }
  return Math.max(low - 1, 0);
}

function drawState(p: Paper, algorithm: Algorithm, look: Look, sim: Simulation): void {
  const { c, colours } = p;
  const top = p.height - bandHeight;
  const height = bandHeight - 4;
  c.font = font(11);
  c.textBaseline = "middle";
  c.textAlign = "center";
  switch (algorithm) {
    case "token_bucket":
      drawReturns(p, look, sim, top + height / 2);
      return;
    case "leaky_bucket":
      drawTurns(p, sim, top + height / 2);
      return;
    case "sliding_log":
      c.fillStyle = colours.accent;
      for (const span of look.spans) {
        c.beginPath();
        c.roundRect(p.x(span.start) - 1.25, top, 2.5, height, 1.25);
        c.fill();
      }
      return;
    case "sliding_buckets":
      for (const span of look.spans) {
        const x = p.x(span.start);
        const width = Math.max(p.x(span.end) - x - 1, 1);
        const tall = (count: number) => Math.max((count / Math.max(look.capacity, 1)) * height, 2);
        c.fillStyle = colours["accent-soft"];
        c.fillRect(x, top + height - tall(span.count), width, tall(span.count));
        c.fillStyle = colours.accent;
        if (span.counts > 0) c.fillRect(x, top + height - tall(span.counts), width, tall(span.counts));
        if (width > 14) {
          c.fillStyle = colours.text;
          c.fillText(String(span.count), x + width / 2, top + height - tall(span.count) - 6);
        }
      }
      return;
    default:
      for (const span of look.spans) drawWindow(p, span, top, height);
  }
}

/** Draws a window as a box. A past window is outlined where it overlaps the last period. */
function drawWindow(p: Paper, span: Look["spans"][number], top: number, height: number): void {
  const { c, colours } = p;
  const left = p.x(span.start) + 1;
  const right = p.x(span.end) - 1;
  const counts = Math.max(left, span.end < p.now ? p.x(p.now - p.period) : left);
  c.fillStyle = colours["accent-soft"];
  c.beginPath();
  c.roundRect(left, top, right - left, height, 4);
  c.fill();
  c.strokeStyle = colours.accent;
  c.lineWidth = 1.5;
  c.beginPath();
  c.roundRect(counts, top, Math.max(right - counts, 1), height, 4);
  c.stroke();
  const text = span.end <= p.now ? `${span.counts} of ${span.count} counted` : `${span.count}`;
  // The text goes into the wider part of the box that is in view.
  const parts = [
    [Math.max(left, 0), Math.min(counts, p.width)],
    [Math.max(counts, 0), Math.min(right, p.width)],
  ] as const;
  const [from, to] = parts[0][1] - parts[0][0] > parts[1][1] - parts[1][0] ? parts[0] : parts[1];
  if (to - from < c.measureText(text).width + 8) return;
  c.fillStyle = colours.text;
  c.fillText(text, (from + to) / 2, top + height / 2 + 0.5);
}

/** Draws when each used token returns. */
function drawReturns(p: Paper, look: Look, sim: Simulation, y: number): void {
  const { limit, period } = sim.settings;
  if (limit === 0 || look.resetAfter <= 0) return;
  const each = period / limit;
  const end = p.now + look.resetAfter;
  const count = Math.min(Math.ceil(look.used), 500);
  for (let i = count - 1; i >= 0 && p.x(end - i * each) <= p.width; i--) drawDot(p, sim, end - i * each, y);
}

/** Draws when each request leaves the queue. */
function drawTurns(p: Paper, sim: Simulation, y: number): void {
  const lane = algorithms.indexOf("leaky_bucket");
  // No request waits longer than for a full queue.
  const { limit, burst, period } = sim.settings;
  const longest = limit > 0 ? ((burst || limit) / limit) * period : 0;
  for (let i = sim.marks.length - 1; i >= 0; i--) {
    const mark = sim.marks[i]!;
    if (mark.at < p.now - past * p.period - longest) break;
    const answer = mark.answers[lane]!;
    if (answer.allowed) drawDot(p, sim, mark.at + answer.delay, y);
  }
}

/** Draws a dot, solid in the future and pale in the past. */
function drawDot(p: Paper, sim: Simulation, at: number, y: number): void {
  const { c, colours } = p;
  const each = p.x(p.now + sim.settings.period / Math.max(sim.settings.limit, 1)) - p.x(p.now);
  c.globalAlpha = at > p.now ? 1 : 0.45;
  c.fillStyle = colours.accent;
  c.beginPath();
  c.arc(p.x(at), y, Math.min(3.5, Math.max(1.25, each * 0.35)), 0, 2 * Math.PI);
  c.fill();
  c.globalAlpha = 1;
}

function drawNow(p: Paper, look: Look): void {
  const { c, colours } = p;
  const x = Math.round(p.x(p.now)) + 0.5;
  c.strokeStyle = colours.text;
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(x, 0);
  c.lineTo(x, p.height);
  c.stroke();
  if (look.retryAfter <= 0) return;
  // A flag where the next request would be allowed.
  const at = p.x(p.now + look.retryAfter);
  if (at > p.width) return;
  c.strokeStyle = colours.allowed;
  c.fillStyle = colours.allowed;
  c.setLineDash([2, 2]);
  c.beginPath();
  c.moveTo(Math.round(at) + 0.5, marksAt - 8);
  c.lineTo(Math.round(at) + 0.5, p.height - bandHeight - 8);
  c.stroke();
  c.setLineDash([]);
  c.beginPath();
  c.moveTo(Math.round(at), marksAt - 13);
  c.lineTo(Math.round(at) + 9, marksAt - 9);
  c.lineTo(Math.round(at), marksAt - 5);
  c.fill();
}
