import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { random } from "../src/playground/streams.ts";
import { openBrowser, openTab } from "./browser.ts";
import { type Door, openDoor } from "./door.ts";
import { ask } from "./load.ts";
import { shrink } from "./png.ts";
import { lastScreen, terminalPage, toHTML } from "./terminal.ts";

// Takes the pictures of docs/pictures: make pictures.

const folder = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));

/** The largest picture that the docs may contain, in bytes. */
const largest = 200_000;

const rules = `domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 5/minute, algorithm: sliding_log}
  - {name: search, match: {path: /search}, key: [client_ip], rate: 5/second, burst: 10}
  - {name: thumbnails, match: {path: /thumbnails/**}, key: [client_ip], rate: 2/second, burst: 4, algorithm: leaky_bucket}
  - {name: per-tenant, match: {path: /v1/**}, key: ["header:X-Tenant"], rate: 12/second, burst: 24}
  - {name: exports, match: {path: /exports/**}, key: ["header:X-Tenant"], rate: 10/minute, mode: shadow}
  - {name: webhooks, match: {path: /webhooks}, key: ["header:X-Tenant"], rate: 30/minute, on_limit: {action: queue}}
  - {name: checkout, match: {path: /checkout}, key: ["header:X-Tenant"], rate: 3/second, burst: 6}
  - {name: uploads, match: {path: /uploads}, key: ["header:X-Tenant"], rate: 60/minute}
  - {name: sign-up, match: {path: /sign-up}, key: [client_ip], rate: 10/hour}
`;

const tenants = ["acme", "bluebird", "northside", "orchard", "quartz", "willow"];

type Request = Record<string, string>;

const chance = random(7);
const pick = <T>(all: readonly T[]): T => all[Math.floor(chance() * all.length)]!;
const times = (n: number, make: () => Request): Request[] =>
  Array.from({ length: Math.floor(n + chance()) }, make);

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** The requests of one second to the API: normal traffic, with a scraper and an attack on passwords. */
function traffic(second: number): Request[] {
  const wave = 1 + 0.35 * Math.sin(second / 9) + 0.15 * Math.sin(second / 2.3);
  const client = () => `198.51.100.${1 + Math.floor(chance() * 60)}`;
  const between = (from: number, to: number, n: number) => (second >= from && second < to ? n : 0);
  return [
    ...times(38 * wave, () => ({ method: "GET", path: "/v1/orders", "header:X-Tenant": pick(tenants) })),
    ...times(between(22, 90, 17), () => ({ method: "GET", path: "/v1/orders", "header:X-Tenant": "acme" })),
    ...times(12 * wave, () => ({ method: "GET", path: "/search", client_ip: client() })),
    ...times(between(30, 46, 16) + between(54, 90, 12), () => ({
      method: "GET",
      path: "/search",
      client_ip: "203.0.113.24",
    })),
    ...times(2 * wave, () => ({ method: "POST", path: "/checkout", "header:X-Tenant": pick(tenants) })),
    ...times(between(40, 90, 5), () => ({ method: "POST", path: "/checkout", "header:X-Tenant": "willow" })),
    ...times(1.4, () => ({ method: "PUT", path: "/uploads", "header:X-Tenant": pick(tenants) })),
    ...times(0.6, () => ({ method: "POST", path: "/sign-up", client_ip: client() })),
    ...times(2, () => ({ method: "POST", path: "/login", client_ip: client() })),
    ...times(between(36, 90, 5), () => ({
      method: "POST",
      path: "/login",
      client_ip: pick(["203.0.113.77", "203.0.113.81", "2001:db8:31::7"]),
    })),
    ...times(5, () => ({
      method: "GET",
      path: "/thumbnails/cat.webp",
      client_ip: pick(["198.51.100.7", "198.51.100.19", "198.51.100.23", "198.51.100.42"]),
    })),
    ...times(0.8, () => ({
      method: "POST",
      path: "/exports/csv",
      "header:X-Tenant": pick(tenants.slice(0, 2)),
    })),
  ];
}

/** Sends traffic, spread over each second, until the signal stops it. */
async function load(door: Door, stop: AbortSignal): Promise<void> {
  const sent: Promise<unknown>[] = [];
  const parts = 5;
  const start = Date.now();
  let requests: Request[] = [];
  for (let i = 0; !stop.aborted; i++) {
    if (i % parts === 0) requests = traffic(i / parts);
    const slice = requests.filter((_, j) => j % parts === i % parts);
    sent.push(ask(door.api, slice, 8));
    if (i % parts === 0) {
      const init = { method: "POST", headers: { "X-Tenant": "northside" }, body: "{}" };
      sent.push(fetch(`${door.proxy}/webhooks`, init).then((response) => response.text()));
    }
    const wait = start + ((i + 1) * 1000) / parts - Date.now();
    if (wait > 0) await pause(wait);
  }
  await Promise.all(sent);
}

let browser: Browser;
let upstream: Server;
let door: Door;
let temporary: string;

beforeAll(async () => {
  temporary = mkdtempSync(join(tmpdir(), "headgate-pictures-"));
  mkdirSync(folder, { recursive: true });
  upstream = createServer((_request, response) => response.end("ok"));
  await new Promise<void>((listening) => upstream.listen(0, "127.0.0.1", listening));
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  writeFileSync(join(temporary, "rules.yaml"), rules);
  writeFileSync(
    join(temporary, "headgate.yaml"),
    `rules: [rules.yaml]\nqueue: {path: queue.db}\nproxy: {listen: "127.0.0.1:0", upstream: "${target}"}\n`,
  );
  door = await openDoor(["--config", join(temporary, "headgate.yaml"), "--upstream", target]);
  browser = await openBrowser();
});

afterAll(async () => {
  await browser?.close();
  await door?.stop();
  upstream?.closeAllConnections();
  upstream?.close();
  rmSync(temporary, { recursive: true, force: true });
});

const look = {
  viewport: { width: 1360, height: 1000 },
  deviceScaleFactor: 1.5,
  colorScheme: "light",
} as const;

/** Saves a picture of the top of a page, down to the lower edge of an element. */
async function save(page: Page, name: string, last: string, margin = 12): Promise<void> {
  await page.mouse.move(0, 0);
  const box = (await page.locator(last).first().boundingBox())!;
  const { width } = page.viewportSize()!;
  const height = Math.ceil(box.y + box.height + margin);
  await write(name, await page.screenshot({ fullPage: true, clip: { x: 0, y: 0, width, height } }));
}

async function write(name: string, png: Buffer): Promise<void> {
  const small = await shrink(browser, png);
  writeFileSync(folder + name, small);
  expect(small.length, name).toBeLessThan(largest);
}

test("the dashboard and headgate top, under load", async () => {
  const { page, wrong } = await openTab(browser, door.url, look);
  await page.goto(door.url);
  await page.waitForSelector("[data-connection=live]");
  const stop = new AbortController();
  const loading = load(door, stop.signal);
  await page.locator("[data-tile=requests]").waitFor();
  await page.keyboard.press("1");
  await pause(60_000);
  const bin = process.env.HEADGATE_BIN ?? fileURLToPath(new URL("../../bin/headgate", import.meta.url));
  const screen = await lastScreen(`'${bin}' top --address ${door.url} -n 3`, 118, 50, 5000);
  await save(page, "dashboard.png", ".dash-cols");
  await page.emulateMedia({ colorScheme: "dark" });
  await pause(1500);
  await save(page, "dashboard-dark.png", ".dash-cols");
  stop.abort();
  await loading;
  const terminal = await browser.newPage({ viewport: { width: 1200, height: 1000 }, deviceScaleFactor: 2 });
  await terminal.setContent(terminalPage("headgate top", toHTML(screen)));
  await write("top.png", await terminal.locator(".window").screenshot());
  expect(wrong).toEqual([]);
});

test("the playground", async () => {
  const { page, wrong } = await openTab(browser, door.url, look);
  await page.goto(`${door.url}/playground`);
  await page.waitForSelector(".lane");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await page.getByRole("button", { name: "Restart", exact: true }).click();
  // By steps of simulated time, so that the picture is always the same.
  for (let i = 0; i < 46; i++) await page.getByRole("button", { name: "+1.0 s", exact: true }).click();
  await save(page, "playground.png", ".cols");
  await page.getByRole("button", { name: "Lost update" }).click();
  await page.getByRole("button", { name: "Pause race" }).click();
  const next = page.getByRole("button", { name: "Next step" });
  while (await next.isEnabled()) await next.click();
  await write("playground-race.png", await page.locator(".race").screenshot());
  expect(wrong).toEqual([]);
});
