import { type Algorithm, algorithms } from "./algorithms.ts";

/** A limit. Fields of other algorithms are ignored. */
export interface LimitSpec {
  algorithm: Algorithm;
  limit: number;
  /** In microseconds, like all times here. */
  period: number;
  burst: number;
  anchor: "clock" | "first_request";
  buckets: number;
  edge: "weighted" | "lenient" | "strict";
  countDenied: boolean;
  /** Slots of a leaky bucket that are served without delay; 0 means 1. */
  delayAfter: number;
  /** The longest delay of a leaky bucket; 0 means the full queue. */
  maxWait: number;
  /** The length of a token bucket's steps; 0 means that it refills continuously. */
  refillEvery: number;
}

/** A decision compared with an exact log of the lane's own history. */
export const verdicts = ["right", "too_many", "too_strict"] as const;
export type Verdict = (typeof verdicts)[number];

/** The answer to one request. */
export interface Answer {
  allowed: boolean;
  /** Time until it would be allowed; -1 for never, 0 if it was allowed. */
  retryAfter: number;
  /** How long an allowed request has to wait for its turn. */
  delay: number;
  verdict: Verdict;
}

/** A part of a state: count requests between start and end, of which counts still count. */
export interface Span {
  start: number;
  end: number;
  count: number;
  counts: number;
}

/** The state of a lane at a time. */
export interface Look {
  /** The retry time of a request with the given cost: 0 if allowed, -1 for never. */
  retryAfter: number;
  remaining: number;
  resetAfter: number;
  delay: number;
  used: number;
  capacity: number;
  bytes: number;
  allowed: number;
  refused: number;
  tooMany: number;
  tooStrict: number;
  peak: number;
  spans: Span[];
}

/** The answer of {@link Core.do}, in the order of the shared vectors. */
export interface Result {
  allowed: boolean;
  reason: number;
  limit: number;
  remaining: number;
  granted: number;
  retryAfter: number;
  resetAfter: number;
  delay: number;
  freshAt: number;
  wrote: boolean;
  countsUntil: number;
}

/** How servers share the count of a key, in the order of the constants of Go. */
export const sharings = ["read_then_write", "atomic_step", "apart"] as const;
export type Sharing = (typeof sharings)[number];

/** A request at a server, from 0 on. */
export interface Arrival {
  at: number;
  server: number;
}

/** What happened to an arrival. Times that did not occur are 0. */
export interface Turn extends Arrival {
  read: number;
  wrote: number;
  answered: number;
  allowed: boolean;
  /** How much was in use in the state that was read, and in the one that was written. */
  found: number;
  left: number;
  /** How many requests of others the written state has lost. */
  lost: number;
  verdict: Verdict;
}

interface Exports {
  _initialize(): void;
  memory: WebAssembly.Memory;
  buffer(): number;
  text(): number;
  set(lane: number): number;
  reset(lane: number): void;
  hits(lane: number, n: number): void;
  used(lane: number, n: number): void;
  look(lane: number, at: number, cost: number): number;
  race(lane: number, sharing: number, servers: number, way: number, n: number): number;
  do(lane: number, kind: number, at: number, cost: number, duration: number, countsUntil: number): void;
}

const numbers = 1 << 14;
const edges = ["weighted", "lenient", "strict"];

/** Core wraps the compiled web/wasm/main.go. */
export class Core {
  readonly #go: Exports;

  private constructor(exports: Exports) {
    this.#go = exports;
  }

  /** Starts a module. Each Core has its own lanes, 0 to 7. */
  static async start(module: WebAssembly.Module): Promise<Core> {
    const memory: { current?: WebAssembly.Memory } = {};
    const instance = await WebAssembly.instantiate(module, system(module, memory));
    const exports = instance.exports as unknown as Exports;
    memory.current = exports.memory;
    exports._initialize();
    return new Core(exports);
  }

  // Go's memory may grow, which detaches earlier views of it.
  #numbers(): Float64Array {
    return new Float64Array(this.#go.memory.buffer, this.#go.buffer(), numbers);
  }

  /** Sets the limit of a lane. Usage is kept. Returns an error message, or "". */
  set(lane: number, spec: LimitSpec): string {
    this.#numbers().set([
      algorithms.indexOf(spec.algorithm),
      spec.limit,
      spec.period,
      spec.burst,
      spec.anchor === "first_request" ? 1 : 0,
      spec.buckets,
      edges.indexOf(spec.edge),
      spec.countDenied ? 1 : 0,
      spec.delayAfter,
      spec.maxWait,
      spec.refillEvery,
    ]);
    const length = this.#go.set(lane);
    return new TextDecoder().decode(new Uint8Array(this.#go.memory.buffer, this.#go.text(), length));
  }

  /** Clears a lane, except for its limit. */
  reset(lane: number): void {
    this.#go.reset(lane);
  }

  /** Answers requests, which must be in the order of their times. */
  hits(lane: number, requests: readonly { at: number; cost: number }[]): Answer[] {
    const answers: Answer[] = [];
    const atOnce = Math.floor(numbers / 3);
    for (let from = 0; from < requests.length; from += atOnce) {
      const part = requests.slice(from, from + atOnce);
      const asked = this.#numbers();
      part.forEach((request, i) => {
        asked[3 * i] = request.at;
        asked[3 * i + 1] = request.cost;
      });
      this.#go.hits(lane, part.length);
      const b = this.#numbers();
      for (let i = 0; i < 3 * part.length; i += 3) {
        answers.push({
          allowed: b[i] === 0,
          retryAfter: b[i]!,
          delay: b[i + 1]!,
          verdict: verdicts[b[i + 2]!]!,
        });
      }
    }
    return answers;
  }

  /** Returns the usage of a lane at each of the times. */
  used(lane: number, times: readonly number[]): number[] {
    this.#numbers().set(times);
    this.#go.used(lane, times.length);
    return Array.from(this.#numbers().subarray(0, times.length));
  }

  /** Returns the state of a lane at a time, for a request with a cost. */
  look(lane: number, at: number, cost: number): Look {
    const count = this.#go.look(lane, at, cost);
    const b = this.#numbers();
    const spans: Span[] = [];
    for (let i = 12; i < 12 + 4 * count; i += 4) {
      spans.push({ start: b[i]!, end: b[i + 1]!, count: b[i + 2]!, counts: b[i + 3]! });
    }
    return {
      retryAfter: b[0]!,
      remaining: b[1]!,
      resetAfter: b[2]!,
      delay: b[3]!,
      used: b[4]!,
      capacity: b[5]!,
      bytes: b[6]!,
      allowed: b[7]!,
      refused: b[8]!,
      tooMany: b[9]!,
      tooStrict: b[10]!,
      peak: b[11]!,
      spans,
    };
  }

  /** Lets servers, each way us from their store, decide under the limit of a lane. */
  race(lane: number, sharing: Sharing, servers: number, way: number, arrivals: readonly Arrival[]): Turn[] {
    const asked = this.#numbers();
    arrivals.forEach((arrival, i) => {
      asked[2 * i] = arrival.at;
      asked[2 * i + 1] = arrival.server;
    });
    const n = this.#go.race(lane, sharings.indexOf(sharing), servers, way, arrivals.length);
    const b = this.#numbers();
    return arrivals.slice(0, n).map((arrival, i) => {
      const [read, wrote, answered, allowed, found, left, lost, verdict] = b.subarray(8 * i, 8 * i + 8);
      return {
        ...arrival,
        read: read!,
        wrote: wrote!,
        answered: answered!,
        allowed: allowed === 1,
        found: found!,
        left: left!,
        lost: lost!,
        verdict: verdicts[verdict!]!,
      };
    });
  }

  /** Answers a request of any kind without counting it in the results, for the shared vectors. */
  do(lane: number, kind: number, at: number, cost: number, duration: number, countsUntil: number): Result {
    this.#go.do(lane, kind, at, cost, duration, countsUntil);
    const b = this.#numbers();
    return {
      allowed: b[0] === 1,
      reason: b[1]!,
      limit: b[2]!,
      remaining: b[3]!,
      granted: b[4]!,
      retryAfter: b[5]!,
      resetAfter: b[6]!,
      delay: b[7]!,
      freshAt: b[8]!,
      wrote: b[9] === 1,
      countsUntil: b[10]!,
    };
  }
}

/**
 * Returns the part of WASI that Go's runtime needs here: a clock, random numbers
 * for its hash seeds, no arguments, no files. All other functions return ENOSYS.
 */
function system(module: WebAssembly.Module, memory: { current?: WebAssembly.Memory }): WebAssembly.Imports {
  const view = () => new DataView(memory.current!.buffer);
  const ok = 0;
  const badFile = 8;
  const none = 52;
  const empty = (a: number, b: number) => {
    view().setUint32(a, 0, true);
    view().setUint32(b, 0, true);
    return ok;
  };
  const known: Record<string, (...args: never[]) => unknown> = {
    args_sizes_get: empty,
    environ_sizes_get: empty,
    args_get: () => ok,
    environ_get: () => ok,
    sched_yield: () => ok,
    fd_prestat_get: () => badFile,
    clock_time_get: (_id: number, _precision: bigint, at: number) => {
      view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
      return ok;
    },
    random_get: (at: number, length: number) => {
      crypto.getRandomValues(new Uint8Array(memory.current!.buffer, at, length));
      return ok;
    },
    proc_exit: (code: number) => {
      throw new Error(`WebAssembly exited with code ${code}`);
    },
  };
  const wasi: Record<string, WebAssembly.ImportValue> = {};
  for (const { name } of WebAssembly.Module.imports(module)) wasi[name] = known[name] ?? (() => none);
  return { wasi_snapshot_preview1: wasi };
}
