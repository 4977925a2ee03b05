import { type Attributes, type Client, type Decision } from "./client.js";
import { HeadgateError, Unavailable } from "./errors.js";
import { joined } from "./fields.js";

export interface MiddlewareOptions<Request> {
  /** Returns further attributes, or others than method, path, host and client_ip of the connection. */
  attributes?: (request: Request) => Attributes | Promise<Attributes>;
  /** Is called if a slot could not be freed or an answer not be reported. */
  onFailure?: (error: Unavailable) => void;
}

// What the frameworks have in common, so that this package needs none of them.
interface Incoming {
  method?: string | undefined;
  url?: string | undefined;
  originalUrl?: string;
  headers: Record<string, string | string[] | undefined>;
  socket: { remoteAddress?: string | undefined };
}
interface Outgoing {
  statusCode: number;
  readonly writableFinished: boolean;
  readonly destroyed: boolean;
  setHeader(name: string, value: unknown): unknown;
  getHeader(name: string): unknown;
  writeHead(status: number, ...more: unknown[]): unknown;
  end(body: string): unknown;
  once(event: "close", listener: () => void): unknown;
}
interface FastifyRequest {
  raw: Incoming;
  headers: Incoming["headers"];
  ip: string;
  url: string;
  query: unknown;
  params: unknown;
}
interface FastifyReply {
  raw: Outgoing;
  code(status: number): FastifyReply;
  headers(values: Record<string, string>): FastifyReply;
  send(body: string): unknown;
}
interface HonoContext {
  req: { method: string; url: string; header(name: string): string | undefined };
  res: Response;
  header(name: string, value: string): void;
  env: unknown;
}

const problems = "https://iana.org/assignments/http-problem-types#";

/** Status, header fields and body for a refused request, as Headgate's own doors answer. */
function refusal(d: Decision): { status: number; headers: Record<string, string>; body: string } {
  const failed = d.reason === "fail_closed";
  const hidden = d.action === "shadow_ban";
  const banned = d.reason === "banned" && !hidden;
  const reduced = failed || (d.reason === "headroom" && !hidden);
  const status = reduced ? 503 : 429;
  const body = JSON.stringify({
    type: problems + (reduced ? "temporary-reduced-capacity" : banned ? "abnormal-usage-detected" : "quota-exceeded"),
    title: reduced ? "Capacity temporarily reduced" : banned ? "Abnormal usage detected" : "Request quota exceeded",
    status,
    detail: "Try again later.",
    "violated-policies": d.rule !== undefined && !hidden ? [d.rule] : undefined,
    retry_after_ms: hidden ? undefined : d.retryAfterMs,
  });
  const headers = { ...(hidden ? {} : d.headers), ...(failed ? { "retry-after": "1" } : {}) };
  return { status, headers: { ...headers, "content-type": "application/problem+json", "cache-control": "no-store" }, body };
}

function described(method: string, url: string, host: string | undefined, address: string | undefined): Attributes {
  const path = url.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, "").replace(/[?#].*$/s, "") || "/";
  const clientIP = address?.replace(/%.*$/, "");
  return { method, path, ...(host ? { host } : {}), ...(clientIP ? { client_ip: clientIP } : {}) };
}

const describedIncoming = (r: Incoming) =>
  described(r.method ?? "GET", r.originalUrl ?? r.url ?? "/", [r.headers["host"]].flat()[0], r.socket.remoteAddress);

const marks = new WeakMap<object, string[]>();

/**
 * Returns the rules that mark a request, which then passes and is over a soft limit; usually none.
 * Express and Fastify know it by the request, Hono by its context.
 */
export function soft(request: object): string[] {
  return [...(marks.get(request) ?? [])];
}

/** Checks a request, remembers its marks after those of an outer middleware, and waits until its turn. */
async function decide<R extends object>(client: Client, domain: string, request: R, known: Attributes, options: MiddlewareOptions<R>): Promise<Decision> {
  const d = await client.check(domain, { ...known, ...(await options.attributes?.(request)) });
  if (d.soft.length > 0) marks.set(request, [...soft(request), ...d.soft]);
  if (d.allowed && d.delayMs > 0) await new Promise((turn) => setTimeout(turn, d.delayMs));
  return d;
}

/**
 * Frees the slot of a request and reports its answer; without a status, nobody saw the answer. A
 * slot that Headgate forgot when it restarted is a failure for the hook: there is nobody to throw to.
 */
async function end<R>(client: Client, d: Decision, status: number | undefined, options: MiddlewareOptions<R>): Promise<void> {
  try {
    if (d.lease) await client.release(d.lease);
    if (d.report && status !== undefined) await client.report(d.report, { status });
  } catch (e) {
    if (!(e instanceof HeadgateError)) throw e;
    options.onFailure?.(e instanceof Unavailable ? e : new Unavailable("status", e.message));
  }
}

/** Ends a request when its answer has ended, which it may already have if the client has gone. */
function follow<R>(client: Client, d: Decision, answer: Outgoing, options: MiddlewareOptions<R>): void {
  if (!d.lease && !d.report) return;
  const closed = () => void end(client, d, answer.writableFinished ? answer.statusCode : undefined, options);
  if (answer.destroyed) closed();
  else answer.once("close", closed);
}

/** Sets our fields when the header is about to be sent, so that they are there once, whatever the application sets. */
function setHeaders(d: Decision, answer: Outgoing): void {
  const { writeHead } = answer;
  answer.writeHead = (status, ...more) => {
    answer.writeHead = writeHead;
    const given = more.at(-1);
    for (const [name, value] of pairs(given)) answer.setHeader(name, value);
    for (const [name, value] of Object.entries(d.headers)) {
      const theirs = answer.getHeader(name);
      answer.setHeader(name, joined(theirs === undefined ? undefined : [theirs].flat().join(", "), name, value));
    }
    return writeHead.call(answer, status, ...more.filter((m) => typeof m === "string"));
  };
}

/** Returns the fields that writeHead was given: an object, or names and values in turn. */
function pairs(given: unknown): [string, unknown][] {
  if (!Array.isArray(given)) return typeof given === "object" && given !== null ? Object.entries(given) : [];
  const fields = new Map<string, unknown[]>();
  for (const [name, value] of Array.isArray(given[0]) ? given : given.flatMap((n, i) => (i % 2 ? [] : [[n, given[i + 1]]]))) {
    fields.set(name, [...(fields.get(name) ?? []), value].flat());
  }
  return [...fields].map(([name, values]) => [name, values.length === 1 ? values[0] : values]);
}

/** Middleware for Express. */
export function express<R extends Incoming>(client: Client, domain: string, options: MiddlewareOptions<R> = {}) {
  return (request: R, response: Outgoing, next: (error?: unknown) => void): void => {
    decide(client, domain, request, describedIncoming(request), options).then((d) => {
      if (d.allowed) {
        setHeaders(d, response);
        follow(client, d, response, options);
        next();
        return;
      }
      const { status, headers, body } = refusal(d);
      response.statusCode = status;
      for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
      response.end(body);
    }).catch(next);
  };
}

/** A plugin for Fastify, for all routes that are registered after it. */
export function fastify<R extends FastifyRequest>(client: Client, domain: string, options: MiddlewareOptions<R> = {}) {
  async function onRequest(request: R, reply: FastifyReply): Promise<unknown> {
    const d = await decide(client, domain, request, describedIncoming(request.raw), options);
    if (d.allowed) {
      setHeaders(d, reply.raw);
      follow(client, d, reply.raw, options);
      return;
    }
    const { status, headers, body } = refusal(d);
    return reply.code(status).headers(headers).send(body);
  }
  const plugin = async (app: { addHook(name: "onRequest", hook: typeof onRequest): unknown }): Promise<void> => {
    app.addHook("onRequest", onRequest);
  };
  return Object.assign(plugin, { [Symbol.for("skip-override")]: true }); // so that it is for all routes
}

/**
 * Middleware for Hono. On Node, the client's address is that of the connection, and a slot is freed
 * when the answer has ended; elsewhere, set client_ip, and a slot is freed when the answer begins.
 */
export function hono<C extends HonoContext>(client: Client, domain: string, options: MiddlewareOptions<C> = {}) {
  return async (c: C, next: () => Promise<void>): Promise<Response | void> => {
    const env = c.env as { incoming?: Incoming; outgoing?: Outgoing } | undefined;
    const known = described(c.req.method, env?.incoming?.url ?? c.req.url, c.req.header("host"), env?.incoming?.socket.remoteAddress);
    const d = await decide(client, domain, c, known, options);
    if (!d.allowed) {
      const { status, headers, body } = refusal(d);
      return new Response(body, { status, headers });
    }
    if (env?.outgoing) follow(client, d, env.outgoing, options);
    try {
      await next();
    } finally {
      if (!env?.outgoing) void end(client, d, c.res.status, options);
    }
    for (const [name, value] of Object.entries(d.headers)) c.header(name, joined(c.res.headers.get(name) ?? undefined, name, value));
  };
}
