import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get, Problem } from "./api.ts";

/** The last response, and the error since then, if any. */
export interface Polled<T> {
  data?: T;
  problem?: Problem;
}

/** A request that is repeated. */
export interface Poll<T> {
  state: Signal<Polled<T>>;
  /** Sends the request now. */
  again: () => Promise<void>;
}

/**
 * Requests path every `every` milliseconds while the page is visible. An endpoint
 * that the server does not have is requested ten times less often. An empty path
 * sends no requests.
 */
export function usePoll<T>(path: string, every: number): Poll<T> {
  const poll = useMemo(() => new Poller<T>(path, every), [path, every]);
  useEffect(() => poll.start(), [poll]);
  return poll;
}

class Poller<T> implements Poll<T> {
  readonly state = signal<Polled<T>>({});
  readonly #path: string;
  readonly #every: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asking: AbortController | undefined;

  constructor(path: string, every: number) {
    this.#path = path;
    this.#every = every;
  }

  start(): () => void {
    if (!this.#path) return () => {};
    const look = () => {
      if (!document.hidden) void this.again();
    };
    document.addEventListener("visibilitychange", look);
    void this.again();
    return () => {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(this.#timer);
      this.#asking?.abort();
    };
  }

  again = async (): Promise<void> => {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    let rarely = false;
    try {
      this.state.value = { data: await get<T>(this.#path, asking.signal) };
    } catch (error) {
      if (asking.signal.aborted) return;
      const problem = error instanceof Problem ? error : new Problem(String(error), 0);
      rarely = problem.absent;
      this.state.value = { ...this.state.value, problem };
    }
    if (!asking.signal.aborted && !document.hidden) {
      this.#timer = setTimeout(this.again, rarely ? this.#every * 10 : this.#every);
    }
  };
}
