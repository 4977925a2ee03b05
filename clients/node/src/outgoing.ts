import { HeadgateError } from "./errors.js";

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
    if (/^\d{1,15}$/.test(after)) return Number(after) * 1000;
    const ms = /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT$/.test(after) ? Date.parse(after) - now : NaN;
    if (!Number.isNaN(ms)) return Math.max(0, ms);
  }
  let wait = 0;
  for (const item of (answer.headers.get("RateLimit") ?? "").replace(/"(?:[^"\\]|\\.)*"/g, "").split(",")) {
    const known = new Map([...item.matchAll(/;\s*([rt])=(\d{1,15})(?=\s*(?:;|$))/g)].map((m) => [m[1], Number(m[2])]));
    if (known.get("r") === 0) wait = Math.max(wait, (known.get("t") ?? 0) * 1000);
  }
  return wait;
}

/**
 * Returns a fetch that remembers for each origin how long it asked to wait, and waits before the
 * next call. A call answered with 429 or 503 and a time to wait is sent again, unless its body is a
 * stream. Before a wait above `maxWaitMs` it throws Limited.
 */
export function obeying(options: ObeyingOptions = {}): typeof globalThis.fetch {
  const { retries = 2, maxWaitMs = 60_000, fetch = globalThis.fetch, now = Date.now } = options;
  const sleep = options.sleep ?? ((ms: number) => new Promise<void>((end) => setTimeout(end, ms)));
  const until = new Map<string, number>();

  return async (input, init) => {
    const { origin } = new URL(input instanceof Request ? input.url : input);
    const streams = (input instanceof Request && input.body !== null) || init?.body instanceof ReadableStream;
    for (let attempt = 0; ; attempt++) {
      const wait = (until.get(origin) ?? 0) - now();
      if (wait > maxWaitMs) throw new Limited(origin, wait);
      const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined);
      if (wait > 0) await Promise.race([sleep(wait), aborted(signal)]);
      else until.delete(origin);
      const answer = await fetch(input, init);
      const asked = waitAsked(answer, now());
      if (asked > 0) until.set(origin, Math.max(until.get(origin) ?? 0, now() + asked));
      const again = (answer.status === 429 || answer.status === 503) && asked > 0 && asked <= maxWaitMs;
      if (!again || streams || attempt === retries) return answer;
      await answer.body?.cancel();
    }
  };
}

/** Fails when a signal says so. */
function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, fail) => {
    if (signal?.aborted) fail(signal.reason);
    signal?.addEventListener("abort", () => fail(signal.reason), { once: true });
  });
}
