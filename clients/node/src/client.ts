import { Mistake, Unavailable } from "./errors.js";

/** What rules match and count by: method, path, host, client_ip, header:NAME and others. */
export type Attributes = Record<string, string>;

export interface CheckOptions {
  /** 0 is a dry run; 1 by default. */
  cost?: number;
  /** Charges nothing. */
  peek?: boolean;
}

export interface Check extends CheckOptions {
  domain: string;
  attributes: Attributes;
}

/** The answer to a check, with the fields of the HTTP API. Times are in milliseconds. */
export interface Decision {
  allowed: boolean;
  reason: string;
  rule?: string;
  limit?: number;
  remaining?: number;
  /** Absent from a refusal: waiting does not help. */
  retryAfterMs?: number;
  resetAfterMs?: number;
  action?: string;
  delayMs: number;
  lease?: string;
  report?: string;
  reservation?: string;
  createdAt?: string;
  changedAt?: string;
  shadow: string[];
  /** The rules that mark the request: it passes, and is over a soft limit. */
  soft: string[];
  /** The rate limit fields of the answer, for your own answer. */
  headers: Record<string, string>;
  /** Why Headgate did not decide; `allowed` is then what the client was told to assume. */
  error?: Unavailable;
}

/** How a reservation, a report or a lease ended. If not `done`, `reason` says why. */
export interface Settlement {
  done: boolean;
  reason?: string;
  inDebt: boolean;
  counted?: boolean;
  lease?: string;
  rulesGone: string[];
}

export interface ClientOptions {
  token?: string;
  /** For a whole call; 50 by default. */
  timeoutMs?: number;
  /** Whether requests pass if Headgate does not answer; true by default. */
  failOpen?: boolean;
  /** Is called for each call that Headgate did not answer. */
  onFailure?: (error: Unavailable) => void;
  /** Such as one with an authority of your own. */
  fetch?: typeof globalThis.fetch;
}

const maxAnswer = 8 << 20; // bytes; a batch of 1000 takes about 200 KiB

type Kind = "string" | "number" | "boolean" | "list";

// Members of answers that are known, by their names in the API; others are ignored.
const decisionMembers: Record<string, Kind> = {
  allowed: "boolean", reason: "string", rule: "string", limit: "number", remaining: "number", retry_after_ms: "number",
  reset_after_ms: "number", action: "string", delay_ms: "number", lease: "string", report: "string", reservation: "string",
  created_at: "string", changed_at: "string", shadow: "list", soft: "list",
};
const settlementMembers: Record<string, Kind> = {
  reason: "string", in_debt: "boolean", counted: "boolean", lease: "string", rules_gone: "list",
};

/** A client of one server. It keeps connections open, as fetch does. */
export class Client {
  readonly #url: string;
  readonly #headers: Headers;
  readonly #options: ClientOptions;

  constructor(url = "http://127.0.0.1:8080", options: ClientOptions = {}) {
    const at = new URL(url);
    if (at.username || at.password) { // not shown
      throw new TypeError("the address has a user: want one such as http://127.0.0.1:8080");
    }
    if (!/^https?:$/.test(at.protocol) || at.search || at.hash) {
      throw new TypeError(`${JSON.stringify(url)} is not an address such as http://127.0.0.1:8080`);
    }
    const { token = "", timeoutMs = 50 } = options;
    if (!/^[!-~]*$/.test(token)) throw new TypeError("the token has characters that a header field cannot have");
    if (!(timeoutMs > 0 && timeoutMs < 2 ** 31)) throw new RangeError(`invalid timeoutMs ${timeoutMs}: want milliseconds above 0, such as 50`);
    this.#url = at.href.replace(/\/+$/, "");
    this.#headers = new Headers({ "Content-Type": "application/json" });
    if (token) this.#headers.set("Authorization", `Bearer ${token}`);
    this.#options = options;
  }

  /** Asks whether a request may pass. */
  async check(domain: string, attributes: Attributes, options: CheckOptions = {}): Promise<Decision> {
    return this.#decide("/v1/check", { domain, attributes, ...options });
  }

  /** Decides up to 1000 checks, one after the other. */
  async checkMany(checks: Check[]): Promise<Decision[]> {
    const body = JSON.stringify({ checks });
    try {
      const { value } = await this.#post("/v1/check", body);
      const results = isObject(value) ? value["results"] : undefined;
      if (!Array.isArray(results) || results.length !== checks.length) {
        throw new Unavailable("malformed", `the answer does not have ${checks.length} results`);
      }
      return results.map((r) => decision(r, {}));
    } catch (e) {
      const failed = this.#failed(e);
      return checks.map(() => failed);
    }
  }

  /** Charges an estimate. If allowed, commit or cancel the `reservation` of the answer. */
  async reserve(domain: string, attributes: Attributes, options: { cost?: number; ttlMs?: number } = {}): Promise<Decision> {
    return this.#decide("/v1/reserve", { domain, attributes, cost: options.cost, ttl_ms: options.ttlMs });
  }

  /** Charges the real cost. Throws Unavailable; trying again is safe, as it counts once. */
  async commit(reservation: string, cost: number): Promise<Settlement> {
    return this.#settle("commit", "committed", { reservation, cost });
  }

  /** Refunds a reservation. Throws Unavailable; trying again is safe. */
  async cancel(reservation: string): Promise<Settlement> {
    return this.#settle("cancel", "cancelled", { reservation });
  }

  /** Frees the slot of a concurrency rule. Throws Unavailable. */
  async release(lease: string): Promise<Settlement> {
    return this.#settle("release", "released", { lease });
  }

  /** Keeps a slot; the answer has its new `lease`. Throws Unavailable. */
  async renew(lease: string): Promise<Settlement> {
    return this.#settle("renew", "renewed", { lease });
  }

  /** Says how a request was answered, for rules with charge_on. Throws Unavailable. */
  async report(report: string, answer: { status?: number; headers?: Record<string, string | string[]> }): Promise<Settlement> {
    return this.#settle("report", "reported", { report, ...answer });
  }

  async #decide(path: string, check: object): Promise<Decision> {
    const body = JSON.stringify(check);
    try {
      const { status, headers, value } = await this.#post(path, body);
      const d = decision(value, headers);
      if (d.allowed !== (status === 200)) throw new Unavailable("malformed", "status and body of the answer disagree");
      return d;
    } catch (e) {
      return this.#failed(e);
    }
  }

  async #settle(action: string, verb: string, body: object): Promise<Settlement> {
    const { value } = await this.#post(`/v1/${action}`, JSON.stringify(body));
    const known = members(value, { ...settlementMembers, [verb]: "boolean" });
    if (known[verb] === undefined) throw new Unavailable("malformed", `the answer does not say ${verb}`);
    const { [camel(verb)]: done, ...others } = known;
    return { inDebt: false, rulesGone: [], ...others, done: done as boolean };
  }

  #failed(e: unknown): Decision {
    if (!(e instanceof Unavailable)) throw e;
    this.#options.onFailure?.(e);
    const allowed = this.#options.failOpen ?? true;
    return { allowed, reason: allowed ? "fail_open" : "fail_closed", delayMs: 0, shadow: [], soft: [], headers: {}, error: e };
  }

  async #post(path: string, body: string): Promise<{ status: number; headers: Record<string, string>; value: unknown }> {
    const { fetch = globalThis.fetch, timeoutMs = 50 } = this.#options;
    let answer: Response;
    let text: string;
    try {
      const signal = AbortSignal.timeout(Math.ceil(timeoutMs));
      answer = await fetch(this.#url + path, { method: "POST", headers: this.#headers, body, redirect: "manual", signal });
      text = await read(answer);
    } catch (e) {
      if (e instanceof Unavailable) throw e;
      if (e instanceof Error && e.name === "TimeoutError") throw new Unavailable("timeout", `no answer in ${timeoutMs} ms`);
      throw new Unavailable("unreachable", `${e instanceof Error ? (e.cause ?? e) : e}`, { cause: e });
    }
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 408 && answer.status !== 429) {
      const problem = parsed(text);
      const detail = isObject(problem) ? problem["detail"] : undefined;
      if (detail !== undefined) throw new Mistake(answer.status, String(detail)); // else something in between answers
    }
    if (answer.status !== 200 && answer.status !== 429) throw new Unavailable("status", `status ${answer.status}`);
    const value = parsed(text);
    if (value === undefined) throw new Unavailable("malformed", "the answer is not JSON");
    const headers = Object.fromEntries([...answer.headers].filter(([name]) => /^(x-)?ratelimit|^retry-after$/.test(name)));
    return { status: answer.status, headers, value };
  }
}

/** Reads the body of an answer, up to a size. */
async function read(answer: Response): Promise<string> {
  const decoder = new TextDecoder();
  let [text, size] = ["", 0];
  for await (const part of answer.body ?? []) {
    size += part.length;
    if (size > maxAnswer) throw new Unavailable("malformed", "the answer is too large");
    text += decoder.decode(part, { stream: true });
  }
  return text + decoder.decode();
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const camel = (name: string) => name.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase());

/** Returns the members of an object that are known, with names as usual here, and checks their types. */
function members(value: unknown, known: Record<string, Kind>): Record<string, unknown> {
  if (!isObject(value)) throw new Unavailable("malformed", "the answer is not an object");
  const found: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(known)) {
    const v = value[name];
    if (v === undefined || v === null) continue;
    const right = kind === "list" ? Array.isArray(v) && v.every((s) => typeof s === "string") : kind === "number" ? Number.isSafeInteger(v) : typeof v === kind;
    if (!right) throw new Unavailable("malformed", `${name} in the answer is invalid`);
    found[camel(name)] = v;
  }
  return found;
}

function decision(value: unknown, headers: Record<string, string>): Decision {
  const known = members(value, decisionMembers);
  if (known["allowed"] === undefined || known["reason"] === undefined) throw new Unavailable("malformed", "the answer has no decision");
  return { delayMs: 0, shadow: [], soft: [], ...known, headers } as unknown as Decision;
}
