import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, type Tab, violations } from "./browser.ts";
import { type Door, freePort, openDoor } from "./door.ts";
import { ask } from "./load.ts";

const rules = `domain: api
limits:
  - {name: tenant, match: {path: /v1}, key: client_ip, rate: 10_000/second, sync: blocks}
  - {name: daily, match: {path: /v1}, key: client_ip, rate: 1_000_000/day, algorithm: fixed_window, sync: blocks}
  - {name: exact, match: {path: /v1}, key: client_ip, rate: 10_000/second}
`;

const soon = { timeout: 60_000 };
const withRedis = spawnSync("redis-server", ["--version"]).status === 0;

let browser: Browser;
let folder: string;
let redis: ChildProcess | undefined;
let address: string;
const doors: Door[] = [];
const tabs: Tab[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "headgate-e2e-"));
  writeFileSync(join(folder, "rules.yaml"), rules);
  if (withRedis) {
    const port = await freePort();
    address = `127.0.0.1:${port}`;
    const options = ["--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--dir", folder];
    redis = spawn("redis-server", options, { stdio: "ignore" });
  }
  browser = await openBrowser();
});

afterEach(async () => {
  for (const { page } of tabs.splice(0)) await page.context().close();
  for (const door of doors.splice(0)) await door.stop();
});

afterAll(async () => {
  await browser?.close();
  redis?.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

const views = [
  ["light", 1440],
  ["dark", 1440],
  ["dark", 390],
  ["light", 390],
] as const;

async function open(config: string) {
  writeFileSync(join(folder, "headgate.yaml"), `rules: [rules.yaml]\n${config}`);
  const door = await openDoor(["--config", join(folder, "headgate.yaml")]);
  doors.push(door);
  const tab = await openTab(browser, door.url, {
    colorScheme: "light",
    viewport: { width: 1440, height: 900 },
    reducedMotion: "reduce",
    bypassCSP: true, // for axe, which is brought in from outside
  });
  tabs.push(tab);
  await tab.page.goto(`${door.url}/rules`);
  const line = async (rule: string) =>
    (await tab.page.locator(`[data-blocks=${rule}]`).textContent(soon)) ?? "";
  return { door, tab, line };
}

test.skipIf(!withRedis)("what is held in blocks", async () => {
  const config = `store: {redis: {url: "redis://${address}"}}\n`;
  const { door, tab, line } = await open(config);
  const { page, wrong } = tab;
  expect(await line("daily")).toMatch(/^In blocks: no busy key.*\. Never too many, now none too few\.$/);
  const busy = Array.from({ length: 400 }, () => ({ path: "/v1", client_ip: "198.51.100.7" }));
  const holds = /^In blocks: [\d,]+ tokens held of 1 busy key, [\d.>]+% decided here\. /;
  const expected = [
    ["tenant", new RegExp(`${holds.source}At most 500 too many, now (none|at most [\\d,]+) too few\\.$`)],
    ["daily", new RegExp(`${holds.source}Never too many, now at most [\\d,]+ too few\\.$`)],
  ] as const;
  let texts: string[] = [];
  await expect
    .poll(
      async () => {
        await ask(door.api, busy, 16);
        texts = [await line("tenant"), await line("daily")];
        return expected.every(([, want], i) => want.test(texts[i]!));
      },
      { ...soon, interval: 50 },
    )
    .toBe(true);
  expect(await page.locator("[data-blocks]").count()).toBe(2);
  await page.locator(".explain-form input").nth(3).fill("/v1");
  await page.getByText(/^In blocks, which admit at most 500 above the burst of 10000,/).waitFor(soon);
  for (const [colorScheme, width] of views) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    await expect
      .poll(() => page.evaluate(() => document.documentElement.scrollWidth))
      .toBeLessThanOrEqual(width);
    expect(await violations(page), `${colorScheme}, ${width} pixels`).toEqual([]);
    if (process.env.HEADGATE_SCREENSHOTS) {
      await page.screenshot({ path: `screenshots/blocks-${colorScheme}-${width}.png` });
    }
  }
  expect(wrong).toEqual([]);
});

test("without Redis nothing is drawn", async () => {
  const { tab, line } = await open("");
  expect(await line("tenant")).toBe("In blocks with Redis; this server has none. At most 500 too many.");
  expect(await line("daily")).toBe("In blocks with Redis; this server has none. Never too many.");
  expect(tab.wrong).toEqual([]);
});
