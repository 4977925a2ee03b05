import { type Algorithm, algorithms } from "./algorithms.ts";
import { type Settings, specOf } from "./settings.ts";
import { type Request, Stream } from "./streams.ts";
import type { Answer, Core, Look } from "./wasm.ts";

/** The simulated clock starts at 2026-01-01 00:00 UTC, a boundary of every window. */
export const epoch = 1_767_225_600_000_000;

/** A request and its answer in every lane. */
export interface Mark {
  at: number;
  cost: number;
  answers: Answer[]; // by lane
}

/** A point of the usage curve. */
export interface Sample {
  at: number;
  used: number;
}

/** The result of an advance. */
export interface Advance {
  marks: Mark[];
  /** The clock stopped early because there were too many requests for one advance. */
  late: boolean;
}

/** The most requests that one advance processes. */
const most = 4000;
/** The number of marks and samples kept for the charts. */
const kept = 6000;

/**
 * Simulation sends the same traffic through all six algorithms. All lanes always
 * run, so that a lane that is shown later has the same past. Only {@link advance}
 * moves the clock; the results do not depend on the size of its steps.
 */
export class Simulation {
  readonly core: Core;
  now = epoch;
  marks: Mark[] = [];
  samples: Sample[][] = algorithms.map(() => []);
  /** The error in the limit of each lane, or "". */
  errors: string[] = algorithms.map(() => "");
  requests = 0;
  #settings: Settings;
  #stream: Stream;
  #cost = 1;

  constructor(core: Core, settings: Settings) {
    this.core = core;
    this.#settings = settings;
    this.#stream = this.#apply();
  }

  /** The current settings. */
  get settings(): Settings {
    return this.#settings;
  }

  /** Changes settings. Usage is kept; changed traffic starts again now. */
  change(settings: Settings): void {
    const before = this.#settings;
    this.#settings = settings;
    const traffic = ["kind", "rate", "size", "every", "spread", "cost", "seed"] as const;
    const aims =
      settings.kind === "boundary" && (settings.limit !== before.limit || settings.period !== before.period);
    const stream = this.#stream;
    const next = this.#apply();
    this.#stream = aims || traffic.some((key) => settings[key] !== before[key]) ? next : stream;
  }

  #apply(): Stream {
    this.errors = algorithms.map((algorithm, lane) => this.core.set(lane, specOf(this.#settings, algorithm)));
    this.#cost = this.#settings.cost;
    return new Stream(this.#settings, this.#settings, this.now);
  }

  /** Starts again with the current settings. */
  reset(): void {
    for (const [lane] of algorithms.entries()) this.core.reset(lane);
    this.now = epoch;
    this.marks = [];
    this.samples = algorithms.map(() => []);
    this.requests = 0;
    this.#stream = this.#apply();
  }

  /** Advances the clock by us microseconds, and processes the requests until then. */
  advance(us: number): Advance {
    const until = this.now + Math.round(us);
    const due: Request[] = [];
    while (due.length < most && this.#stream.next && this.#stream.next.at <= until)
      due.push(this.#stream.take()!);
    const late = due.length === most;
    const to = late ? due[most - 1]!.at : until;
    const marks = this.#answer(due, to);
    return { marks, late };
  }

  /** Advances to the next request of the traffic, at most by one period. */
  step(): Advance {
    const next = this.#stream.next;
    const furthest = this.now + this.#settings.period;
    return this.advance((next && next.at <= furthest ? next.at : furthest) - this.now);
  }

  /** Sends n requests now. */
  hit(n = 1): Mark[] {
    return this.#answer(
      Array.from({ length: n }, () => ({ at: this.now, cost: this.#cost })),
      this.now,
    );
  }

  /** The current state of a lane. */
  look(algorithm: Algorithm): Look {
    return this.core.look(algorithms.indexOf(algorithm), this.now, this.#cost);
  }

  #answer(requests: Request[], to: number): Mark[] {
    const marks: Mark[] = requests.map((request) => ({ ...request, answers: [] }));
    const times = this.#times(requests, to);
    for (const [lane] of algorithms.entries()) {
      const samples = this.samples[lane]!;
      // The curve needs the usage before and after every request. Between requests
      // it only falls, which a few points show.
      let from = 0;
      for (const group of times) {
        this.core.used(lane, group.before).forEach((used, i) => {
          samples.push({ at: group.before[i]!, used });
        });
        const answers = this.core.hits(lane, requests.slice(from, from + group.requests));
        answers.forEach((answer, i) => {
          marks[from + i]!.answers.push(answer);
        });
        from += group.requests;
      }
      samples.push({ at: to, used: this.core.used(lane, [to])[0]! });
      if (samples.length > 2 * kept) samples.splice(0, samples.length - kept);
    }
    this.now = to;
    this.requests += marks.length;
    this.marks.push(...marks);
    if (this.marks.length > 2 * kept) this.marks.splice(0, this.marks.length - kept);
    return marks;
  }

  // The times to sample, in groups that end at requests.
  #times(requests: Request[], to: number): { before: number[]; requests: number }[] {
    const step = Math.max(this.#settings.period / 240, 1000);
    const groups: { before: number[]; requests: number }[] = [];
    let at = this.now;
    const upTo = (until: number) => {
      const before: number[] = [];
      // After a jump of many periods, only the last ones are drawn.
      const first = Math.max(at, until - 3 * this.#settings.period);
      for (let t = Math.ceil(first); t < until; t += step) before.push(Math.round(t));
      before.push(until);
      at = until;
      return before;
    };
    for (let i = 0; i < requests.length; ) {
      // Requests closer together than the width of a line are one jump of the curve.
      const { at: first } = requests[i]!;
      let n = 1;
      while (i + n < requests.length && requests[i + n]!.at < first + step / 4) n++;
      groups.push({ before: upTo(first), requests: n });
      i += n;
      at = requests[i - 1]!.at;
    }
    if (to > at) groups.push({ before: upTo(to), requests: 0 });
    return groups;
  }
}
