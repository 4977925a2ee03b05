// What the steps of clients/conformance cannot say, as it is about Node alone. The arguments are the
// folder of the built client and the address of a Headgate.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { createServer, request } from "node:http";
import { pathToFileURL } from "node:url";

const [built, url] = process.argv.slice(2);
const { Client, express, obeying, soft } = await import(pathToFileURL(`${built}/index.js`).href);
const gate = new Client(url, { timeoutMs: 5000 });
const listening = (server) => new Promise((open) => server.listen(0, "127.0.0.1", () => open(`http://127.0.0.1:${server.address().port}`)));

// However a wait ends, nothing of it is left: no timer, and no listener at a signal that lives on.
const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
const then = Date.UTC(2026, 10, 28);
const fetchBusy = async () => new Response("", { status: 429, headers: { "Retry-After": new Date(then).toUTCString() } });
for (const [mine, own] of [[undefined, 1], [(ms) => (ms > 1000 ? new Promise(() => {}) : Promise.resolve()), 0]]) {
  const lasting = new AbortController();
  const listeners = () => getEventListeners(lasting.signal, "abort").length;
  const waiting = (ms) => obeying({ retries: 1, sleep: mine, fetch: fetchBusy, now: () => then - ms });

  assert.equal((await waiting(5)("http://service.test", { signal: lasting.signal })).status, 429);
  assert.deepEqual([timers(), listeners()], [0, 0]);

  const call = waiting(30_000);
  const calls = [call("http://service.test", { signal: lasting.signal }), call("http://service.test", { signal: lasting.signal })];
  await new Promise((next) => setImmediate(next));
  assert.deepEqual([timers(), listeners()], [2 * own, 2]);
  lasting.abort(new Error("stop"));
  for (const ended of [...calls, call("http://service.test", { signal: lasting.signal })]) await assert.rejects(ended, { message: "stop" });
  assert.deepEqual([timers(), listeners()], [0, 0]);
}

// Who waits for another service stops when the signal of the call says so.
const busy = createServer((_, response) => response.writeHead(429, { "Retry-After": "30" }).end());
const call = obeying();
const started = performance.now();
await assert.rejects(call(await listening(busy), { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
assert.ok(performance.now() - started < 20_000);

// A slot is freed although its client went before the application was asked.
let gone;
const left = new Promise((resolve) => (gone = resolve));
const middleware = express(gate, "api", { attributes: () => left.then(() => ({ path: "/slot", client_ip: "192.0.2.78" })) });
const app = createServer((incoming, response) => {
  response.once("close", gone);
  middleware(incoming, response, () => response.end());
  asking.destroy();
});
const asking = request(await listening(app)).on("error", () => {}).end();
await left;
const slot = () => gate.check("api", { path: "/slot", client_ip: "192.0.2.78" });
for (let end = Date.now() + 10_000; !(await slot()).allowed; ) assert.ok(Date.now() < end, "the slot is still taken");

// An inner middleware adds its marks to those of an outer one.
const marked = ["/marked/both", "/marked/once", "/elsewhere"].map((path) => express(gate, "api", { attributes: () => ({ path, client_ip: "192.0.2.80" }) }));
const seen = [];
const through = (incoming, response, [first, ...others]) => {
  if (first) return first(incoming, response, () => through(incoming, response, others));
  seen.push(soft(incoming));
  response.end();
};
const several = await listening(createServer((incoming, response) => through(incoming, response, marked)));
for (let i = 0; i < 2; i++) await (await fetch(several)).text();
assert.deepEqual(seen, [["fair-use"], ["fair-use", "most-used", "fair-use"]]);
process.exit(0);
