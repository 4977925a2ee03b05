/** The six algorithms, in the order of the constants of package headgate. */
export const algorithms = [
  "token_bucket",
  "leaky_bucket",
  "fixed_window",
  "sliding_log",
  "sliding_window",
  "sliding_buckets",
] as const;

/** The name of an algorithm, as rules use it. */
export type Algorithm = (typeof algorithms)[number];

/** The description of an algorithm. */
export interface About {
  title: string;
  /** What the chart of its state shows. */
  shows: string;
  /** How it counts, its strength, and its known weakness. */
  how: string;
  good: string;
  weakness: string;
}

/** The descriptions of the page. docs/rules/algorithms.md has the details. */
export const about: Record<Algorithm, About> = {
  token_bucket: {
    title: "Token bucket",
    shows: "used tokens; below, when each one returns",
    how: "A bucket holds up to burst tokens and refills at limit tokens per period. A request takes its cost in tokens, or is refused.",
    good: "Allows bursts after quiet times, then exactly the rate. Stores three numbers per key.",
    weakness: "Weakness: with burst = limit, almost twice the limit can pass within one period.",
  },
  leaky_bucket: {
    title: "Leaky bucket",
    shows: "the queue; below, when each request leaves it",
    how: "A queue with burst slots releases limit requests per period. Each allowed request waits for its turn.",
    good: "The backend receives an even stream of requests, first in, first out.",
    weakness:
      "Weakness: under constant overload every request waits for the full queue. A caller that ignores the delay gets a token bucket.",
  },
  fixed_window: {
    title: "Fixed window",
    shows: "requests in the current window",
    how: "Counts requests in windows that start on the clock or at the first request. Every window starts at zero.",
    good: "The natural choice for daily or monthly budgets. Stores three numbers per key.",
    weakness:
      "Weakness: up to twice the limit can pass around a window boundary, and all waiting clients return at once.",
  },
  sliding_log: {
    title: "Sliding log",
    shows: "one entry per request, kept for one period",
    how: "Keeps the time of every allowed request for one period. A request is allowed if the entries plus its cost fit the limit.",
    good: "Exact: no period, wherever it starts, contains more than the limit.",
    weakness: "Weakness: memory. Each key needs 8 bytes per request, up to the limit.",
  },
  sliding_window: {
    title: "Sliding window",
    shows: "two counters: the previous window fades as the current one fills",
    how: "Keeps two counters. The previous window counts in proportion to its overlap with the last period.",
    good: "No doubled limit at window boundaries. Stores four numbers per key.",
    weakness:
      "Weakness: it assumes that the previous window was evenly used. If not, it allows or refuses a few requests wrongly.",
  },
  sliding_buckets: {
    title: "Sliding buckets",
    shows: "one counter per sub-window",
    how: "Splits the period into sub-windows with one counter each. Only the oldest is estimated: counted in part, not at all, or in full.",
    good: "Errors are limited to one sub-window. With edge: strict, no period contains more than the limit.",
    weakness: "Weakness: a ring of counters per key, and errors of up to one sub-window.",
  },
};
