import { type Algorithm, algorithms } from "./algorithms.ts";
import { type Settings, specOf } from "./settings.ts";
import { type Request, Stream } from "./streams.ts";
import type { Answer, Core, Look } from "./wasm.ts";

/** The simulated clock begins at 2026-01-01 00:00 UTC, an edge of every window. */
export const epoch = 1_767_225_600_000_000;

/** A request and what became of it, in every lane. */
export interface Mark {
  at: number;
  cost: number;
  answers: Answer[]; // by lane
}

/** A point of the curve of what is in use. */
export interface Sample {
  at: number;
  used: number;
}

/** What came of an advance: the requests that came, and whether all did. */
export interface Advance {
  marks: Mark[];
  /** The clock stopped early because more came than one advance answers. */
  late: boolean;
}

/** How many requests one advance answers at most. */
const most = 4000;
/** How many marks and samples are kept, for the picture. */
const kept = 6000;

/**
 * Simulation sends one traffic through all six algorithms. All lanes always run,
 * shown or not, so that one which is shown later has the same past. The clock is
 * moved by {@link advance} alone; what comes of it does not depend on the steps.
 */
export class Simulation {
  readonly core: Core;
  now = epoch;
  marks: Mark[] = [];
  samples: Sample[][] = algorithms.map(() => []);
  /** What is wrong with the limit of each lane, or "". */
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

  /** The settings that hold. */
  get settings(): Settings {
    return this.#settings;
  }

  /** Changes settings. Use is kept; traffic that has changed begins anew now. */
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

  /** Goes back to the beginning, with the settings as they are. */
  reset(): void {
    for (const [lane] of algorithms.entries()) this.core.reset(lane);
    this.now = epoch;
    this.marks = [];
    this.samples = algorithms.map(() => []);
    this.requests = 0;
    this.#stream = this.#apply();
  }

  /** Moves the clock on by us microseconds and answers what comes until then. */
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

  /** Goes to the next request of the traffic, at most a period on. */
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

  /** What a lane shows now. */
  look(algorithm: Algorithm): Look {
    return this.core.look(algorithms.indexOf(algorithm), this.now, this.#cost);
  }

  #answer(requests: Request[], to: number): Mark[] {
    const marks: Mark[] = requests.map((request) => ({ ...request, answers: [] }));
    const times = this.#times(requests, to);
    for (const [lane] of algorithms.entries()) {
      const samples = this.samples[lane]!;
      // The curve needs what is in use before and after every request: between
      // two requests a state only fades, which a few points show.
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

  // The times at which to sample, in groups that end where requests come.
  #times(requests: Request[], to: number): { before: number[]; requests: number }[] {
    const step = Math.max(this.#settings.period / 240, 1000);
    const groups: { before: number[]; requests: number }[] = [];
    let at = this.now;
    const upTo = (until: number) => {
      const before: number[] = [];
      // A jump of many periods need not be drawn in full.
      const first = Math.max(at, until - 3 * this.#settings.period);
      for (let t = Math.ceil(first); t < until; t += step) before.push(Math.round(t));
      before.push(until);
      at = until;
      return before;
    };
    for (let i = 0; i < requests.length; ) {
      // What comes in less time than a line is wide is one jump of the curve.
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
