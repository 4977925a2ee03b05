import type { Second, Timeline } from "../data/types.ts";
import { count } from "../ui/format.ts";

/** How much a server keeps, in seconds. */
const kept = 3600;

/** Adds what a server said about the seconds from `from` on. */
export function merge(was: Timeline | undefined, from: number, heard: Timeline): Timeline {
  if (!was || heard.since !== was.since) return heard;
  const old = was.seconds.filter((s) => s.t < from && s.t > heard.now - kept);
  return { ...heard, seconds: [...old, ...heard.seconds] };
}

/** From which second on to ask again: the last one may not have been over. */
export const askFrom = (known: Timeline | undefined): number => (known ? Math.max(0, known.now - 1) : 0);

/** One bar of the picture. */
export interface Bin {
  /** The start, in seconds since 1970. */
  from: number;
  allowed: number;
  refused: number;
  cost: number;
  /** The least that remained; null if it is unknown. */
  low: number | null;
}

/** Cuts the last `span` seconds into `n` slices of the same length, aligned to the clock. */
export function bins(timeline: Timeline, span: number, n = 60): Bin[] {
  const size = span / n;
  const first = Math.floor(timeline.now / size) - n + 1;
  const out = Array.from({ length: n }, (_, i): Bin => {
    return { from: (first + i) * size, allowed: 0, refused: 0, cost: 0, low: null };
  });
  for (const s of timeline.seconds) {
    const bin = out[Math.floor(s.t / size) - first];
    if (bin) add(bin, s);
  }
  return out;
}

/** Adds a second to a slice. */
function add(bin: Bin, s: Second): void {
  bin.allowed += s.allowed;
  bin.refused += s.refused;
  bin.cost += s.cost;
  if (s.low >= 0) bin.low = bin.low === null ? s.low : Math.min(bin.low, s.low);
}

/** Sums slices. */
export function sum(all: readonly Bin[]): Bin {
  const out: Bin = { from: all[0]?.from ?? 0, allowed: 0, refused: 0, cost: 0, low: null };
  for (const b of all) add(out, { t: b.from, ...b, low: b.low ?? -1 });
  return out;
}

/** The next round number: 1, 2 or 5 times a power of ten. */
export function ceiling(n: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((top) => top >= n) ?? n;
}

/** The path of the level: a step for each slice, connected across slices without requests. */
export function levelPath(
  all: readonly Bin[],
  x: (i: number) => number,
  y: (level: number) => number,
): string {
  let path = "";
  all.forEach((b, i) => {
    if (b.low === null) return;
    path += `${path ? "L" : "M"}${x(i)} ${y(b.low)}H${x(i + 1)}`;
  });
  return path;
}

/** Describes the picture in one sentence, for screen readers. */
export function inWords(total: Bin, limit: number, minutes: number): string {
  const left = total.low === null ? "" : `, at least ${count(total.low)} of ${count(limit)} left`;
  return `Requests in ${minutes} minutes: ${count(total.allowed)} allowed, ${count(total.refused)} refused${left}.`;
}
