// Runs the steps of clients/conformance with this client: one a line, as JSON, from standard input.
// The first argument is the folder of the built client, and the second one with the frameworks.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { Readable, pipeline } from "node:stream";
import { pathToFileURL } from "node:url";

const [built, frameworks] = process.argv.slice(2);
const headgate = await import(pathToFileURL(`${built}/index.js`).href);
const installed = createRequire(pathToFileURL(`${frameworks}/node_modules/`));

let failures = [];
let waits = [];
let ahead = 0;
const clients = new Map();
const obeying = headgate.obeying({
  now: () => Date.now() + ahead,
  sleep: async (ms) => {
    ahead += ms;
    waits.push(Math.ceil(ms / 1000));
  },
});

function client(options) {
  const key = JSON.stringify(options);
  if (!clients.has(key)) {
    const { token, timeout_ms: timeoutMs, fail_open: failOpen } = options;
    const settings = Object.fromEntries(Object.entries({ token, timeoutMs, failOpen }).filter(([, v]) => v !== undefined && v !== null));
    clients.set(key, new headgate.Client(options.url, { ...settings, onFailure: (e) => failures.push(e.kind) }));
  }
  return clients.get(key);
}

/** What is wrong with the settings of a client, or nothing. */
function invalid(options) {
  try {
    client(options);
  } catch (e) {
    return { invalid: e.message };
  }
}

const snake = (name) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);

/** An outcome as JSON, with null for what is absent. */
function shown(value) {
  if (Array.isArray(value)) return { results: value.map(shown) };
  if (value instanceof headgate.Mistake) return { mistake: value.status, detail: value.detail };
  if (value instanceof headgate.Unavailable) return { unavailable: value.kind };
  if (value instanceof Error) throw value;
  const members = Object.fromEntries(Object.entries(value).map(([name, v]) => [snake(name), v]));
  return "allowed" in value ? { ...members, error: value.error?.kind ?? null } : members;
}

async function call({ do: action, client: options, with: given }) {
  const c = client(options);
  switch (action) {
    case "check_many":
      return c.checkMany(given.checks);
    case "check": {
      const { domain, attributes, ...rest } = given;
      return c.check(domain, attributes, rest);
    }
    case "reserve":
      return c.reserve(given.domain, given.attributes, { cost: given.cost, ttlMs: given.ttl_ms });
    case "commit":
      return c.commit(given.reservation, given.cost);
    case "report": {
      const { report, ...answer } = given;
      return c.report(report, answer);
    }
    default:
      return c[action](given.reservation ?? given.lease);
  }
}

async function several(step) {
  const once = () => call(step).catch((e) => e);
  if (step.parallel) return shown(await Promise.all(Array.from({ length: step.parallel }, once)));
  const results = [];
  for (let i = 0; i < step.series; i++) results.push(await once());
  return shown(step.series > 1 ? results : results[0]);
}

async function called(step) {
  try {
    const answer = await obeying(step.client.url);
    await answer.text();
    return { status: answer.status, waits };
  } catch (e) {
    if (!(e instanceof headgate.Limited)) throw e;
    return { limited: e.waitMs / 1000, waits };
  }
}

/** What the applications answer. */
function answer(url, request) {
  const at = new URL(url, "http://localhost");
  if (at.searchParams.has("fail")) throw new Error("the application failed");
  const marks = headgate.soft(request);
  const over = marks.length > 0 ? ` over ${marks.join(", ")}` : "";
  return { status: Number(at.searchParams.get("status") ?? 200), body: `hello ${at.pathname}${over}` };
}

/** Goes on until the client goes. */
async function* dripping() {
  for (;;) {
    yield Buffer.from(".");
    await new Promise((next) => setTimeout(next, 10));
  }
}

const streams = (url) => url.includes("stream");

const listening = (server) => new Promise((open) => server.listen(0, "127.0.0.1", () => open(`http://127.0.0.1:${server.address().port}`)));

const serving = {
  async express(c) {
    const app = installed("express")();
    app.use(headgate.express(c, "api", { attributes: (r) => ({ user: r.get("X-Plan") ?? "nobody" }) }));
    app.use((request, response) => {
      const { status, body } = answer(request.originalUrl, request);
      response.status(status).type("text");
      if (streams(request.url)) return pipeline(dripping, response, () => {});
      response.send(body);
    });
    app.use((error, _request, response, _next) => response.status(500).end());
    return listening(createServer(app));
  },
  async fastify(c) {
    const app = installed("fastify")();
    await app.register(headgate.fastify(c, "api", { attributes: (r) => ({ user: r.headers["x-plan"] ?? "nobody" }) }));
    app.get("/*", async (request, reply) => {
      const { status, body } = answer(request.url, request);
      return reply.code(status).send(streams(request.url) ? Readable.from(dripping()) : body);
    });
    return app.listen({ port: 0, host: "127.0.0.1" });
  },
  async hono(c) {
    const { Hono } = installed("hono");
    const { serve } = installed("@hono/node-server");
    const app = new Hono();
    app.use(headgate.hono(c, "api", { attributes: (x) => ({ user: x.req.header("X-Plan") ?? "nobody" }) }));
    app.get("*", (x) => {
      const { status, body } = answer(x.req.url, x);
      if (x.req.url.includes("immutable")) return Response.redirect("http://localhost/", status);
      return streams(x.req.url) ? x.body(ReadableStream.from(dripping())) : x.text(body, status);
    });
    app.onError((_, x) => x.text("failed", 500));
    return new Promise((open) => serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => open(`http://127.0.0.1:${port}`)));
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  [failures, waits] = [[], []];
  const started = performance.now();
  let outcome;
  if (step.do === "call") outcome = await called(step);
  else if (step.do === "serve") outcome = { url: await serving[step.framework](client({ ...step.client, serving: clients.size })) };
  else outcome = invalid(step.client) ?? (await several(step));
  console.log(JSON.stringify({ ...outcome, failures, took_ms: Math.round(performance.now() - started) }));
}
process.exit(0);
