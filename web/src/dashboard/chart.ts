import type { History } from "../data/history.ts";
import { total } from "../data/history.ts";
import { type Counts, type Outcome, outcomes } from "../data/types.ts";
import { words } from "../ui/format.ts";

/** The colours of a chart, by their names in tokens.css. */
export const tokens = [
  "surface",
  "line",
  "text-2",
  "allowed",
  "allowed-soft",
  "refused",
  "refused-soft",
  "delayed",
  "delayed-soft",
  "queued",
  "queued-soft",
  "shadowed",
  "shadowed-soft",
  "marked",
  "marked-soft",
  "series-1",
  "series-2",
  "series-3",
  "series-4",
  "series-5",
  "series-6",
] as const;

export type Token = (typeof tokens)[number];

/** One line of a chart. */
export interface Line {
  id: string;
  text: string;
  colour: Token;
  /** The colour of the area below the line, if it is filled. */
  fill?: Token;
  /** The value of each second; null where it is unknown. */
  values: (number | null)[];
}

/** The data of a chart. */
export interface Picture {
  times: number[];
  lines: Line[];
  /** Each line is stacked on those before it. */
  stacked: boolean;
}

// From the bottom up: allowed, allowed and marked, allowed later, refused in shadow mode only, refused.
const order: readonly (readonly [Outcome, Token, Token])[] = [
  ["allowed", "allowed", "allowed-soft"],
  ["marked", "marked", "marked-soft"],
  ["delayed", "delayed", "delayed-soft"],
  ["queued", "queued", "queued-soft"],
  ["shadow_refused", "shadowed", "shadowed-soft"],
  ["shadow_banned", "series-5", "shadowed-soft"],
  ["refused", "refused", "refused-soft"],
];

/** Requests by outcome, for one rule or for all. Outcomes that did not occur are left out. */
export function byOutcome(history: History, span: number, rule?: number): Picture {
  const { times, counts } = history.series(span, rule);
  const lines = order
    .filter(([o]) => o === "allowed" || o === "refused" || counts.some((c) => c && c[o] > 0))
    .map(([o, colour, fill]) => ({
      id: o,
      text: words(o),
      colour,
      fill,
      values: counts.map((c) => (c ? c[o] : null)),
    }));
  return { times, lines, stacked: true };
}

/** The requests of the busiest rules. */
export function byRule(history: History, span: number, most = 6): Picture {
  const busiest = history.sum(span).rules.sort((a, b) => b.total - a.total);
  const { times } = history.series(span);
  const lines = busiest.slice(0, most).map((rule, i): Line => {
    const { counts } = history.series(span, rule.id);
    return {
      id: `${rule.domain} ${rule.rule}`,
      text: rule.rule,
      colour: `series-${i + 1}` as Token,
      values: counts.map((c) => (c ? total(c) : null)),
    };
  });
  return { times, lines, stacked: false };
}

/** The height of each line at each time. */
export function heights(picture: Picture): (number | null)[][] {
  if (!picture.stacked) return picture.lines.map((line) => line.values);
  const sums: (number | null)[] = picture.times.map(() => 0);
  return picture.lines.map((line) =>
    line.values.map((value, i) => {
      const below = sums[i];
      sums[i] = value === null || below === null || below === undefined ? null : below + value;
      return sums[i] ?? null;
    }),
  );
}

/** A row of the table version of a chart: a time slice, and the sum of each line in it. */
export interface Row {
  from: number;
  sums: number[];
}

/** Cuts a picture into slices of this many seconds, aligned to the clock, newest first. */
export function rowsOf(picture: Picture, seconds: number): Row[] {
  const rows: Row[] = [];
  picture.times.forEach((t, i) => {
    if (picture.lines.every((line) => line.values[i] === null)) return;
    const from = Math.floor(t / seconds) * seconds;
    if (rows.at(-1)?.from !== from) rows.push({ from, sums: picture.lines.map(() => 0) });
    const { sums } = rows.at(-1)!;
    picture.lines.forEach((line, j) => {
      sums[j]! += line.values[i] ?? 0;
    });
  });
  return rows.reverse();
}

/** Sums the values of a line. */
export const sumOf = (line: Line): number =>
  line.values.reduce<number>((sum, value) => sum + (value ?? 0), 0);

/** Describes a chart in one sentence, for screen readers. */
export function inWords(counts: Counts, seconds: number): string {
  const some = outcomes
    .filter((o) => counts[o] > 0)
    .map((o) => `${counts[o].toLocaleString("en-US")} ${words(o)}`);
  return `Requests in ${seconds.toLocaleString("en-US")} seconds: ${some.length > 0 ? some.join(", ") : "none"}.`;
}
