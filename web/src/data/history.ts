import { type Counts, outcomes, type RuleTick, type Tick } from "./types.ts";

/** How much of the past is kept, in milliseconds. */
export const kept = 15 * 60_000;

/** The counts of a rule, in the order in which they are stored. */
const fields = [...outcomes, "near"] as const;

/** Numbers per rule of a tick: its ID, and the fields. */
const stride = fields.length + 1;

/** One second, packed: 15 minutes of 1,000 rules take 29 MB. */
interface Second {
  t: number;
  totals: Counts;
  requests: number;
  unknown: number;
  degraded: number;
  keys: number;
  rules: Uint32Array;
}

/** A rule's name within its domain. */
export interface RuleName {
  domain: string;
  rule: string;
}

/** The counts of one rule in a time range. */
export interface RuleSum extends RuleName, Counts {
  /** The number of the rule, stable while the page is open. */
  id: number;
  total: number;
  near: number;
}

/** The counts of a time range. */
export interface Sum {
  /** Start and end in milliseconds since 1970; both 0 without data. */
  from: number;
  to: number;
  seconds: number;
  totals: Counts;
  requests: number;
  unknown: number;
  degraded: number;
  near: number;
  /** Requests that rules allowed, counted for each rule. */
  passed: number;
  rules: RuleSum[];
}

/** Counts that are all 0. */
export const zero = (): Counts => ({
  allowed: 0,
  refused: 0,
  delayed: 0,
  queued: 0,
  shadow_banned: 0,
  shadow_refused: 0,
  marked: 0,
});

/** The sum over all outcomes. */
export const total = (c: Counts): number => outcomes.reduce((sum, o) => sum + c[o], 0);

/** The last 15 minutes, second by second, by the clock of the server. */
export class History {
  readonly names: RuleName[] = [];
  /** Rule numbers by domain and name. */
  readonly #ids = new Map<string, Map<string, number>>();
  #seconds: Second[] = [];

  /** The number of seconds kept. */
  get length(): number {
    return this.#seconds.length;
  }

  /** The time of the last second; 0 without data. */
  get last(): number {
    return this.#seconds.at(-1)?.t ?? 0;
  }

  /** Adds a second unless it is known already: a new connection starts with the past. */
  add(tick: Tick): boolean {
    const t = Date.parse(tick.t);
    if (!(t > this.last)) return false;
    const { requests, unknown_domain = 0, ...counts } = tick.totals;
    const rules = new Uint32Array(tick.rules.length * stride);
    let at = 0;
    for (const rule of tick.rules) {
      rules[at++] = this.#id(rule);
      for (const field of fields) rules[at++] = rule[field];
    }
    this.#seconds.push({
      t,
      totals: counts,
      requests,
      unknown: unknown_domain,
      degraded: tick.degraded,
      keys: tick.store.keys,
      rules,
    });
    const old = this.#seconds.findIndex((s) => s.t > t - kept);
    if (old > 60) this.#seconds = this.#seconds.slice(old);
    return true;
  }

  /** Forgets everything, for when the server is a different one. */
  clear(): void {
    this.#seconds = [];
  }

  #id(rule: RuleTick): number {
    let domain = this.#ids.get(rule.domain);
    if (!domain) {
      domain = new Map();
      this.#ids.set(rule.domain, domain);
    }
    let id = domain.get(rule.rule);
    if (id === undefined) {
      id = this.names.length;
      domain.set(rule.rule, id);
      this.names.push({ domain: rule.domain, rule: rule.rule });
    }
    return id;
  }

  #within(span: number): Second[] {
    const after = this.last - span;
    let i = this.#seconds.length;
    while (i > 0 && this.#seconds[i - 1]!.t > after) i--;
    return this.#seconds.slice(i);
  }

  /** Adds up the last span milliseconds. */
  sum(span: number): Sum {
    const seconds = this.#within(span);
    const out: Sum = {
      from: seconds[0]?.t ?? 0,
      to: this.last,
      seconds: seconds.length,
      totals: zero(),
      requests: 0,
      unknown: 0,
      degraded: 0,
      near: 0,
      passed: 0,
      rules: [],
    };
    const rules = new Map<number, Float64Array>();
    for (const s of seconds) {
      for (const o of outcomes) out.totals[o] += s.totals[o];
      out.requests += s.requests;
      out.unknown += s.unknown;
      out.degraded += s.degraded;
      for (let i = 0; i < s.rules.length; i += stride) {
        const id = s.rules[i]!;
        let sums = rules.get(id);
        if (!sums) {
          sums = new Float64Array(fields.length);
          rules.set(id, sums);
        }
        for (let j = 0; j < fields.length; j++) sums[j]! += s.rules[i + 1 + j]!;
      }
    }
    for (const [id, sums] of rules) {
      const counts = Object.fromEntries(fields.map((f, j) => [f, sums[j]!])) as Counts & { near: number };
      const rule = { id, ...this.names[id]!, ...counts, total: total(counts) };
      out.near += rule.near;
      out.passed += rule.allowed + rule.delayed + rule.marked;
      out.rules.push(rule);
    }
    return out;
  }

  /**
   * The last span milliseconds second by second: times in seconds since 1970, and
   * the counts of a rule or of all requests. Missing seconds are marked by a null,
   * so that a chart shows a gap and not a line.
   */
  series(span: number, id?: number): { times: number[]; counts: (Counts | null)[] } {
    const times: number[] = [];
    const counts: (Counts | null)[] = [];
    let before = 0;
    for (const s of this.#within(span)) {
      if (before > 0 && s.t - before > gap) {
        times.push((before + 1000) / 1000);
        counts.push(null);
      }
      times.push(s.t / 1000);
      counts.push(id === undefined ? s.totals : countsOf(s.rules, id));
      before = s.t;
    }
    return { times, counts };
  }
}

/** Ticks come once a second, and later on a busy machine. */
const gap = 3500;

function countsOf(rules: Uint32Array, id: number): Counts {
  const counts = zero();
  for (let i = 0; i < rules.length; i += stride) {
    if (rules[i] !== id) continue;
    outcomes.forEach((o, j) => {
      counts[o] = rules[i + 1 + j]!;
    });
    break;
  }
  return counts;
}

/** A time slice and its counts: a row of the table below a chart. */
export interface Slice {
  from: number;
  counts: Counts;
}

/** Cuts a series into slices of this many seconds, aligned to the clock, newest first. */
export function slices(series: { times: number[]; counts: (Counts | null)[] }, seconds: number): Slice[] {
  const out: Slice[] = [];
  series.times.forEach((t, i) => {
    const counts = series.counts[i];
    if (!counts) return;
    const from = Math.floor(t / seconds) * seconds;
    if (out.at(-1)?.from !== from) out.push({ from, counts: zero() });
    for (const o of outcomes) out.at(-1)!.counts[o] += counts[o];
  });
  return out.reverse();
}
