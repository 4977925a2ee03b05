import type { History } from "../data/history.ts";
import { total } from "../data/history.ts";
import { type Counts, type Outcome, outcomes } from "../data/types.ts";
import { words } from "../ui/format.ts";

/** The colours that a chart needs, by their names in tokens.css. */
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
  "series-1",
  "series-2",
  "series-3",
  "series-4",
  "series-5",
  "series-6",
] as const;

export type Token = (typeof tokens)[number];

/** One line of a chart, with what it is called and its colour. */
export interface Line {
  id: string;
  text: string;
  colour: Token;
  /** What is drawn below the line, if anything. */
  fill?: Token;
  /** What there was in each second; null where nobody knows. */
  values: (number | null)[];
}

/** What a chart shows. */
export interface Picture {
  times: number[];
  lines: Line[];
  /** Each line stands on those before it. */
  stacked: boolean;
}

// From the ground up: what passed, what passed later, what only would have been
// refused, and on top what was.
const order: readonly (readonly [Outcome, Token, Token])[] = [
  ["allowed", "allowed", "allowed-soft"],
  ["delayed", "delayed", "delayed-soft"],
  ["queued", "queued", "queued-soft"],
  ["shadow_refused", "shadowed", "shadowed-soft"],
  ["shadow_banned", "series-5", "shadowed-soft"],
  ["refused", "refused", "refused-soft"],
];

/** Requests by what they came to, of a rule or of all. What never was is left out. */
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

/** The requests of the busiest rules, the others together. */
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

/** What is drawn: the times and the height of each line. */
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

/** A row of the table that says what a chart shows: a piece of time, and what each line has in it. */
export interface Row {
  from: number;
  sums: number[];
}

/** Cuts a picture into pieces of so many seconds, on the clock; the newest first. */
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

/** Adds up what a line has. */
export const sumOf = (line: Line): number =>
  line.values.reduce<number>((sum, value) => sum + (value ?? 0), 0);

/** Says in a sentence what a chart shows, for those who do not see it. */
export function inWords(counts: Counts, seconds: number): string {
  const some = outcomes
    .filter((o) => counts[o] > 0)
    .map((o) => `${counts[o].toLocaleString("en-US")} ${words(o)}`);
  return `Requests in ${seconds.toLocaleString("en-US")} seconds: ${some.length > 0 ? some.join(", ") : "none"}.`;
}
