import { type Algorithm, algorithms } from "./algorithms.ts";
import { type Kind, kinds, type Traffic } from "./streams.ts";
import type { LimitSpec } from "./wasm.ts";

/** All settings, which a link contains as well. Times are in microseconds. */
export interface Settings extends Traffic {
  limit: number;
  period: number;
  /** 0 means the same as the limit. */
  burst: number;
  anchor: LimitSpec["anchor"];
  buckets: number;
  edge: LimitSpec["edge"];
  countDenied: boolean;
  delayAfter: number;
  maxWait: number;
  /** 0 means that a token bucket refills continuously. */
  refillEvery: number;
  /** The lanes to show, in the order of {@link algorithms}. */
  shown: readonly Algorithm[];
  speed: number;
}

/** The speeds, as multiples of real time. */
export const speeds = [0.25, 0.5, 1, 2, 5, 10, 25, 100] as const;

const second = 1_000_000;

/** The defaults, for settings that a link does not contain. */
export const defaults: Settings = {
  limit: 10,
  period: 10 * second,
  burst: 0,
  anchor: "clock",
  buckets: 10,
  edge: "weighted",
  countDenied: false,
  delayAfter: 0,
  maxWait: 0,
  refillEvery: 0,
  kind: "poisson",
  rate: 1.5,
  size: 15,
  every: 10 * second,
  spread: second,
  cost: 1,
  seed: 1,
  shown: ["token_bucket", "fixed_window", "sliding_log", "sliding_window"],
  speed: 1,
};

/** A scenario, with a hint on what to watch. */
export interface Scene {
  name: string;
  watch: string;
  change: Partial<Settings>;
}

/** The scenarios to choose from. */
export const scenes: readonly Scene[] = [
  {
    name: "Random traffic",
    watch:
      "Random requests at 1.5 times the limit. All algorithms allow the same rate but refuse different requests.",
    change: {},
  },
  {
    name: "Window boundary attack",
    watch: "The full limit just before a window ends, and again just after. The fixed window allows both.",
    change: {
      limit: 5,
      kind: "boundary",
      speed: 2,
      shown: ["fixed_window", "sliding_window", "sliding_log", "sliding_buckets"],
    },
  },
  {
    name: "Bursts",
    watch:
      "15 requests at once, with a limit of 10. The token bucket refills gradually; the sliding log remembers every request for a full period.",
    change: { kind: "bursts", size: 15, every: 8 * second, burst: 10 },
  },
  {
    name: "Queueing",
    watch: "The leaky bucket delays requests, so that the backend receives them one by one.",
    change: {
      kind: "bursts",
      size: 8,
      every: 10 * second,
      spread: 0.5 * second,
      limit: 10,
      shown: ["leaky_bucket", "token_bucket"],
    },
  },
  {
    name: "Constant retries",
    watch:
      "With count_denied, refusals count too: a client that never stops retrying is never allowed again.",
    change: {
      kind: "steady",
      rate: 4,
      countDenied: true,
      shown: ["sliding_log", "token_bucket", "fixed_window"],
    },
  },
];

/** The settings of a scenario: its changes applied to the defaults. */
export function sceneSettings(scene: Scene): Settings {
  const { shown = defaults.shown } = scene.change;
  return { ...defaults, ...scene.change, shown: algorithms.filter((name) => shown.includes(name)) };
}

/** The limit of one algorithm under the settings. */
export function specOf(s: Settings, algorithm: Algorithm): LimitSpec {
  const { limit, period, burst, anchor, buckets, edge, countDenied, delayAfter, maxWait, refillEvery } = s;
  return {
    algorithm,
    limit,
    period,
    burst,
    anchor,
    buckets,
    edge,
    countDenied,
    delayAfter,
    maxWait,
    refillEvery,
  };
}

/** Formats a time as in rule files: 10s, 1m, 1h30m, 250ms. */
export function formatDuration(us: number): string {
  if (us === 0) return "0s";
  if (us % second !== 0) return us % 1000 === 0 && us < second ? `${us / 1000}ms` : `${us / second}s`;
  const s = us / second;
  const parts = [
    [Math.floor(s / 3600), "h"],
    [Math.floor(s / 60) % 60, "m"],
    [s % 60, "s"],
  ] as const;
  return parts.map(([n, unit]) => (n > 0 ? `${n}${unit}` : "")).join("");
}

const units: Record<string, number> = { us: 1, ms: 1000, s: second, m: 60 * second, h: 3600 * second };

/** Parses a time such as 10s, 1m30s, 0.5s or 250ms; undefined if it is invalid. */
export function parseDuration(text: string): number | undefined {
  const trimmed = text.trim();
  if (!/^(?:\d+(?:\.\d+)?(?:us|ms|s|m|h))+$/.test(trimmed)) return undefined;
  let sum = 0;
  for (const [, n, unit] of trimmed.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h)/g))
    sum += Number(n) * units[unit!]!;
  const us = Math.round(sum);
  return Number.isSafeInteger(us) ? us : undefined;
}

/** Writes a setting into a link and reads it back; undefined if it is invalid. */
interface Field<T> {
  write: (value: T) => string;
  read: (text: string) => T | undefined;
}

const number = (min: number, max: number, whole: boolean): Field<number> => ({
  write: String,
  read: (text) => {
    const n = Number(text);
    return text !== "" && n >= min && n <= max && (!whole || Number.isInteger(n)) ? n : undefined;
  },
});
const oneOf = <T extends string>(all: readonly T[]): Field<T> => ({
  write: (value) => value,
  read: (text) => all.find((value) => value === text),
});
const duration = (min: number, max: number): Field<number> => ({
  write: formatDuration,
  read: (text) => {
    const us = parseDuration(text);
    return us !== undefined && us >= min && us <= max ? us : undefined;
  },
});

/** All settings with their valid values, for links and for the form. */
export const fields: { [K in keyof Settings]: Field<Settings[K]> } = {
  limit: number(0, 10_000, true),
  period: duration(100_000, 24 * 3600 * second),
  burst: number(0, 10_000, true),
  anchor: oneOf(["clock", "first_request"]),
  buckets: number(1, 512, true),
  edge: oneOf(["weighted", "lenient", "strict"]),
  countDenied: {
    write: String,
    read: (text) => (text === "true" ? true : text === "false" ? false : undefined),
  },
  delayAfter: number(0, 10_000, true),
  maxWait: duration(0, 24 * 3600 * second),
  refillEvery: duration(0, 24 * 3600 * second),
  kind: oneOf<Kind>(kinds),
  rate: number(0.01, 1000, false),
  size: number(1, 1000, true),
  every: duration(100_000, 24 * 3600 * second),
  spread: duration(0, 3600 * second),
  cost: number(1, 1000, true),
  seed: number(0, 4294967295, true),
  shown: {
    write: (value) => value.join(","),
    read: (text) => {
      const names = text.split(",");
      const shown = algorithms.filter((name) => names.includes(name));
      return shown.length > 0 ? shown : undefined;
    },
  },
  speed: {
    write: String,
    read: (text) => speeds.find((speed) => String(speed) === text),
  },
};

/** Writes the settings that differ from the defaults, as the hash of a link. */
export function toHash(s: Settings): string {
  const parts: string[] = [];
  const add = <K extends keyof Settings>(key: K) => {
    const text = fields[key].write(s[key]);
    if (text !== fields[key].write(defaults[key])) parts.push(`${key}=${text}`);
  };
  for (const key of Object.keys(defaults) as (keyof Settings)[]) add(key);
  return parts.join("&");
}

/** Reads settings from a hash. Unknown and invalid ones are ignored. */
export function fromHash(hash: string): Settings {
  const s: Settings = { ...defaults };
  const set = <K extends keyof Settings>(key: K, text: string) => {
    const value = fields[key].read(text);
    if (value !== undefined) s[key] = value;
  };
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [key, ...rest] = part.split("=");
    if (Object.hasOwn(defaults, key!)) set(key as keyof Settings, decode(rest.join("=")));
  }
  return s;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Writes one algorithm's limit as a rule file. */
export function toYAML(s: Settings, algorithm: Algorithm): string {
  const unit: Record<number, string> = { 1: "second", 60: "minute", 3600: "hour" };
  const per = unit[s.period / second] ?? formatDuration(s.period);
  const lines = [
    "domain: api",
    "limits:",
    "  - name: per-client",
    "    match: {path: /**}",
    "    key: [client_ip]",
    `    rate: ${s.limit}/${per}`,
    `    algorithm: ${algorithm}`,
  ];
  switch (algorithm) {
    case "token_bucket":
    case "leaky_bucket":
      if (s.burst > 0) lines.push(`    burst: ${s.burst}`);
      if (algorithm === "token_bucket" && s.refillEvery > 0)
        lines.push(`    refill: {every: ${formatDuration(s.refillEvery)}}`);
      if (algorithm === "leaky_bucket") lines.push(...queueLines(s));
      break;
    case "fixed_window":
      if (s.anchor !== "clock") lines.push(`    anchor: ${s.anchor}`);
      break;
    case "sliding_log":
      if (s.countDenied) lines.push("    count_denied: true");
      break;
    case "sliding_buckets":
      lines.push(`    buckets: ${s.buckets}`, `    edge: ${s.edge}`);
      break;
    case "sliding_window":
  }
  return `${lines.join("\n")}\n`;
}

/** The settings of a leaky bucket's queue that differ from the defaults. */
function queueLines(s: Settings): string[] {
  const lines: string[] = [];
  if (s.delayAfter > 0) lines.push(`    delay_after: ${s.delayAfter}`);
  if (s.maxWait > 0) lines.push(`    on_limit: {action: delay, max_wait: ${formatDuration(s.maxWait)}}`);
  return lines;
}
