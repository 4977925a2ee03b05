import { HeadgateError } from "./errors.js";
import { exhausted } from "./fields.js";

/** A call that was not sent, as the service asked to wait longer than `maxWaitMs`. */
export class Limited extends HeadgateError {
  override name = "Limited";
  constructor(readonly origin: string, readonly waitMs: number) {
    super(`${origin} asks to wait ${waitMs} ms`);
  }
}

export interface ObeyingOptions {
  /** How often a call is sent again; 2 by default. */
  retries?: number;
  /** The longest wait; 60,000 by default. */
  maxWaitMs?: number;
  fetch?: typeof globalThis.fetch;
  now?: () => number;
  sleep?: (ms: number) => Promise<void>;
}

/** Returns how long an answer asks to wait: by Retry-After, or by RateLimit fields of which nothing remains. */
function waitAsked(answer: Response, now: number): number {
  const after = answer.headers.get("Retry-After")?.trim();
  if (after && (answer.status === 429 || answer.status === 503)) {
    if (/^\d{1,30}$/.test(after)) return millis(Number(after), answer, now);
    const then = date(after);
    if (!Number.isNaN(then)) return Math.max(0, then - served(answer, now));
  }
  return Math.max(0, ...exhausted(answer.headers.get("RateLimit") ?? "").map((n) => millis(n, answer, now)));
}

/**
 * Reads a number of seconds. Some services send a time of day instead: a number that would be 31
 * years or more is in Unix seconds, or in milliseconds or finer.
 */
function millis(seconds: number, answer: Response, now: number): number {
  if (seconds < 1e9) return seconds * 1000;
  while (seconds >= 1e12) seconds = Math.floor(seconds / 1000) + 1;
  return Math.max(0, seconds * 1000 - served(answer, now));
}

/** Returns when the answer was sent, by the service's clock if it says so. */
function served(answer: Response, now: number): number {
  const at = date(answer.headers.get("Date") ?? "");
  return Number.isNaN(at) ? now : at;
}

const date = (text: string) => (/^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT$/.test(text) ? Date.parse(text) : NaN);

/** The longest that a service is remembered, so that a wrong time does not end all calls. */
const longest = 3_600_000;

/**
 * Returns a fetch that remembers for each origin how long it asked to wait, and waits before the
 * next call. A call answered with 429 or 503 and a time to wait is sent again, unless its body is a
 * stream. Before a wait above `maxWaitMs` it throws Limited. An origin is remembered for at most an
 * hour, or `maxWaitMs` if that is longer.
 */
export function obeying(options: ObeyingOptions = {}): typeof globalThis.fetch {
  const { retries = 2, maxWaitMs = 60_000, fetch = globalThis.fetch, now = Date.now, sleep } = options;
  const until = new Map<string, number>();

  return async (input, init) => {
    const { origin } = new URL(input instanceof Request ? input.url : input);
    const streams = (input instanceof Request && input.body !== null) || init?.body instanceof ReadableStream;
    for (let attempt = 0; ; attempt++) {
      const wait = (until.get(origin) ?? 0) - now();
      if (wait > maxWaitMs) throw new Limited(origin, wait);
      const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined);
      if (wait > 0) await pause(wait, signal, sleep);
      else until.delete(origin);
      const answer = await fetch(input, init);
      const asked = Math.min(waitAsked(answer, now()), Math.max(longest, maxWaitMs));
      if (asked > 0) until.set(origin, Math.max(until.get(origin) ?? 0, now() + asked));
      const again = (answer.status === 429 || answer.status === 503) && asked > 0 && asked <= maxWaitMs;
      if (!again || streams || attempt === retries) return answer;
      await answer.body?.cancel();
    }
  };
}

/** Waits, or fails when a signal says so. Either way it leaves neither a timer nor a listener behind. */
async function pause(ms: number, signal: AbortSignal | undefined, sleep: ObeyingOptions["sleep"]): Promise<void> {
  signal?.throwIfAborted();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop = () => {};
  try {
    await new Promise<void>((end, fail) => {
      stop = () => fail(signal?.reason);
      signal?.addEventListener("abort", stop);
      if (sleep) sleep(ms).then(end, fail);
      else timer = setTimeout(end, ms);
    });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}
