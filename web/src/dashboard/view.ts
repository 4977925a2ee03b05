import { signal } from "@preact/signals";
import type { Shortcut } from "../shell/shortcuts.ts";

/** The spans that can be looked at, in milliseconds. */
export const spans = [
  { ms: 60_000, text: "1 min" },
  { ms: 5 * 60_000, text: "5 min" },
  { ms: 15 * 60_000, text: "15 min" },
] as const;

/** What is looked at. */
export const view = {
  span: signal<number>(spans[1].ms),
  by: signal<"outcome" | "rule">("outcome"),
  /** The rule whose requests alone are in the chart, by its number in the history. */
  rule: signal<number | undefined>(undefined),
  paused: signal(false),
};

/** The keys of the dashboard. */
export const keys: readonly Shortcut[] = [
  ...spans.map(({ ms, text }, i) => ({
    keys: String(i + 1),
    what: `The last ${text}`,
    act: () => {
      view.span.value = ms;
    },
  })),
  {
    keys: "o",
    what: "Chart by outcome or by rule",
    act: () => {
      view.by.value = view.by.value === "rule" ? "outcome" : "rule";
    },
  },
  {
    keys: "a",
    what: "All rules in the chart",
    act: () => {
      view.rule.value = undefined;
    },
  },
  {
    keys: "p",
    what: "Pause or resume",
    act: () => {
      view.paused.value = !view.paused.value;
    },
  },
];
