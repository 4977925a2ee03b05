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

/** What a reader is told about an algorithm. */
export interface About {
  title: string;
  /** What the picture of its state shows. */
  shows: string;
  /** Three sentences: how it counts, what that is good for, its known weakness. */
  how: string;
  good: string;
  weakness: string;
}

/** What the page says of each algorithm. docs/algorithms.md says it at length. */
export const about: Record<Algorithm, About> = {
  token_bucket: {
    title: "Token bucket",
    shows: "tokens in use; below, when each comes back",
    how: "A bucket holds up to burst tokens, limit of them fall in per period, and a request takes its cost or is refused.",
    good: "It lets saved-up bursts through and then goes on at exactly the rate, with three numbers a key.",
    weakness:
      "Its weakness is that very burst: with burst = limit, nearly twice the limit can pass within one period.",
  },
  leaky_bucket: {
    title: "Leaky bucket",
    shows: "the queue; below, whose turn comes when",
    how: "A queue has burst places and lets limit requests go per period, and each admitted request is told when its turn is.",
    good: "What stands behind it is fed evenly, first in, first out.",
    weakness:
      "Its weakness: under a steady overload everyone waits for the whole queue, and who ignores the delay has a token bucket.",
  },
  fixed_window: {
    title: "Fixed window",
    shows: "the count of this window",
    how: "Requests are counted in windows that begin on the clock or with the first request, and every window starts at zero.",
    good: "It is the natural count for budgets of the calendar, and costs three numbers a key.",
    weakness:
      "Its weakness is the edge: twice the limit can pass within a moment around it, and all who waited come back at once.",
  },
  sliding_log: {
    title: "Sliding log",
    shows: "an entry for each request, for one period",
    how: "The time of every admitted request is kept for one period, and a request passes if those and its cost fit the limit.",
    good: "It is exact: no period, wherever it begins, ever holds more than the limit.",
    weakness:
      "Its weakness is memory, 8 bytes for every request up to the limit and for every key; here you see it grow.",
  },
  sliding_window: {
    title: "Sliding window",
    shows: "two counters: the window before fades as this one fills",
    how: "Two counters are kept, and the previous window's counts by the part of it that the last period still overlaps.",
    good: "There is no edge at which twice the limit passes, for four numbers a key.",
    weakness:
      "Its weakness: it takes the previous window for even, so after a lopsided one a few pass, or are refused, that should not be.",
  },
  sliding_buckets: {
    title: "Sliding buckets",
    shows: "sub-windows with a count each",
    how: "The period is cut into sub-windows with a counter each, and only the oldest one has to be estimated: weighed, left out or counted whole.",
    good: "Errors shrink to one sub-window, and with edge: strict no period ever holds more than the limit.",
    weakness:
      "Its weakness is a ring of counters per key, and requests refused or admitted by up to one sub-window.",
  },
};
