/** The kinds of traffic. "none" leaves it to the reader. */
export const kinds = ["none", "steady", "poisson", "bursts", "boundary"] as const;
export type Kind = (typeof kinds)[number];

/** Traffic: what comes when. Times are in microseconds. */
export interface Traffic {
  kind: Kind;
  /** Requests a second, for steady and poisson. */
  rate: number;
  /** Requests in a burst, for bursts. */
  size: number;
  /** Time from one burst to the next, and how long one lasts. */
  every: number;
  spread: number;
  cost: number;
  seed: number;
}

/** A request that comes. */
export interface Request {
  at: number;
  cost: number;
}

/**
 * Returns random numbers from 0 up to but not including 1: mulberry32, the same
 * for the same seed in every browser.
 */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const second = 1_000_000;
/** The part of a period, on each side of an edge, in which the attack on it comes. */
const near = 1 / 16;

/**
 * Stream is traffic from some time on: next says when the next request comes,
 * take takes it. What comes depends on the traffic, the start and the seed only,
 * never on how often somebody looks.
 */
export class Stream {
  readonly #traffic: Traffic;
  readonly #limit: number;
  readonly #period: number;
  readonly #random: () => number;
  #burst = 0; // the number of the burst, and of the request in it
  #index = -1;
  #start: number;
  #next: Request | undefined;

  constructor(traffic: Traffic, limit: { limit: number; period: number }, start: number) {
    this.#traffic = traffic;
    this.#limit = Math.max(limit.limit, 1);
    this.#period = limit.period;
    this.#random = random(traffic.seed);
    this.#start = start;
    this.#advance();
  }

  /** The request that comes next, if any ever does. */
  get next(): Request | undefined {
    return this.#next;
  }

  /** Takes the next request: the one after it is next then. */
  take(): Request | undefined {
    const taken = this.#next;
    if (taken) this.#advance();
    return taken;
  }

  #advance(): void {
    const at = this.#when();
    this.#next = at === undefined ? undefined : { at: Math.round(at), cost: this.#traffic.cost };
  }

  #when(): number | undefined {
    const { kind, rate, size, every, spread } = this.#traffic;
    switch (kind) {
      case "none":
        return undefined;
      case "steady":
        if (!(rate > 0)) return undefined;
        this.#index++;
        return this.#start + ((this.#index + 1) * second) / rate;
      case "poisson":
        if (!(rate > 0)) return undefined;
        this.#start += (-Math.log(1 - this.#random()) * second) / rate;
        return this.#start;
      case "bursts": {
        if (size < 1 || !(every > 0)) return undefined;
        this.#count(size);
        const gap = size > 1 ? Math.min(spread, every) / size : 0;
        return this.#start + (this.#burst + 0.25) * every + this.#index * gap;
      }
      case "boundary": {
        // As many as the limit just before an edge of the clock's windows, and
        // as many just after; then a period of silence, so that all starts anew.
        this.#count(2 * this.#limit);
        const edge = (Math.floor(this.#start / this.#period) + 1 + 2 * this.#burst) * this.#period;
        const gap = (this.#period * near) / this.#limit;
        const i = this.#index;
        return i < this.#limit ? edge - (this.#limit - i) * gap : edge + (i - this.#limit) * gap;
      }
    }
  }

  #count(size: number): void {
    if (++this.#index === size) {
      this.#index = 0;
      this.#burst++;
    }
  }
}
