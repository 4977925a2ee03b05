/** The kinds of traffic. With "none", requests are only sent by hand. */
export const kinds = ["none", "steady", "poisson", "bursts", "boundary"] as const;
export type Kind = (typeof kinds)[number];

/** A traffic pattern. Times are in microseconds. */
export interface Traffic {
  kind: Kind;
  /** Requests per second, for steady and poisson. */
  rate: number;
  /** Requests in a burst, for bursts. */
  size: number;
  /** The time from one burst to the next, and the duration of a burst. */
  every: number;
  spread: number;
  cost: number;
  seed: number;
}

/** A request of the traffic. */
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
/** The duration of a boundary attack on each side, as part of a period. */
const near = 1 / 16;

/**
 * Stream is traffic from a start time on: next is the next request, take removes
 * it. The requests depend only on the traffic, the start and the seed.
 */
export class Stream {
  readonly #traffic: Traffic;
  readonly #limit: number;
  readonly #period: number;
  readonly #random: () => number;
  #burst = 0; // number of the burst, and of the request in it
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

  /** The next request, if there is one. */
  get next(): Request | undefined {
    return this.#next;
  }

  /** Removes and returns the next request. */
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
        // The full limit just before a window boundary and again just after, then a
        // period without requests, so that every algorithm is unused again.
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
