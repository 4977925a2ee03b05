import { signal } from "@preact/signals";
import type { Shortcut } from "../shell/shortcuts.ts";

/** The time ranges to choose from, in milliseconds. */
export const spans = [
  { ms: 60_000, text: "1 min" },
  { ms: 5 * 60_000, text: "5 min" },
  { ms: 15 * 60_000, text: "15 min" },
] as const;

/** What the page shows. */
export const view = {
  span: signal<number>(spans[1].ms),
  by: signal<"outcome" | "rule">("outcome"),
  /** The only rule in the chart, by its number in the history; undefined for all. */
  rule: signal<number | undefined>(undefined),
  paused: signal(false),
};

/** The keyboard shortcuts of the dashboard. */
export const keys: readonly Shortcut[] = [
  ...spans.map(({ ms, text }, i) => ({
    keys: String(i + 1),
    what: `Last ${text}`,
    act: () => {
      view.span.value = ms;
    },
  })),
  {
    keys: "o",
    what: "Group chart by outcome or rule",
    act: () => {
      view.by.value = view.by.value === "rule" ? "outcome" : "rule";
    },
  },
  {
    keys: "a",
    what: "Show all rules in the chart",
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
