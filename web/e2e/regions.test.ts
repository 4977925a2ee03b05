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
  - {name: search, match: {path: /v1}, key: client_ip, rate: 600/hour, algorithm: sliding_window, regions: shared}
  - {name: upload, match: {path: /files}, key: client_ip, rate: 10/second, burst: 100, regions: {slack: 5%}}
`;

const soon = { timeout: 60_000 };
const withRedis = spawnSync("redis-server", ["--version"]).status === 0;

let browser: Browser;
let folder: string;
const started: ChildProcess[] = [];
const doors: Door[] = [];
const tabs: Tab[] = [];

/** Starts a Redis, on this port if it is given. */
async function openRedis(port?: number): Promise<{ port: number; stop: () => void }> {
  const at = port ?? (await freePort());
  const options = ["--port", `${at}`, "--bind", "127.0.0.1", "--save", "", "--dir", folder];
  const child = spawn("redis-server", options, { stdio: "ignore" });
  started.push(child);
  return { port: at, stop: () => child.kill("SIGKILL") };
}

async function openRegion(name: string, own: number, other: string, at: number): Promise<Door> {
  const file = join(folder, `${name}.yaml`);
  writeFileSync(
    file,
    `rules: [rules.yaml]
store: redis://127.0.0.1:${own}
regions: {name: ${name}, peers: {${other}: "redis://127.0.0.1:${at}"}}
`,
  );
  const door = await openDoor(["--config", file]);
  doors.push(door);
  return door;
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "headgate-e2e-"));
  writeFileSync(join(folder, "rules.yaml"), rules);
  browser = await openBrowser();
});

afterEach(async () => {
  for (const { page } of tabs.splice(0)) await page.context().close();
  for (const door of doors.splice(0)) await door.stop();
  for (const child of started.splice(0)) child.kill("SIGKILL");
});

afterAll(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function view(door: Door): Promise<Tab> {
  const tab = await openTab(browser, door.url, {
    colorScheme: "light",
    viewport: { width: 1440, height: 1200 },
    reducedMotion: "reduce",
    bypassCSP: true, // for axe, which is brought in from outside
  });
  tabs.push(tab);
  await tab.page.goto(door.url);
  return tab;
}

const views = [
  ["light", 1440],
  ["dark", 1440],
  ["dark", 390],
  ["light", 390],
] as const;

test.skipIf(!withRedis)("a region gets tokens of another, which is then cut off", async () => {
  const [own, other] = [await openRedis(), await openRedis()];
  const eu = await openRegion("eu", own.port, "us", other.port);
  await openRegion("us", other.port, "eu", own.port);
  const { page, wrong } = await view(eu);
  const panel = page.locator("section.regions");
  const us = panel.locator("[data-region=us]");
  await panel.getByText("connected").waitFor(soon);
  const look = async (name: string) => {
    for (const [colorScheme, width] of views) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 1200 });
      await expect
        .poll(() => page.evaluate(() => document.documentElement.scrollWidth))
        .toBeLessThanOrEqual(width);
      expect(await violations(page), `${name}, ${colorScheme}, ${width} pixels`).toEqual([]);
      if (process.env.HEADGATE_SCREENSHOTS) {
        await panel.screenshot({ path: `screenshots/${name}-${colorScheme}-${width}.png` });
      }
    }
  };
  const busy = Array.from({ length: 100 }, () => ({ path: "/v1", client_ip: "198.51.100.7" }));
  const received = us.locator("td").nth(2);
  // The panel updates without being loaded again: a tenant in eu gets what us has.
  await expect
    .poll(
      async () => {
        await ask(eu.api, busy, 8);
        return Number(await received.textContent());
      },
      { ...soon, interval: 100 },
    )
    .toBeGreaterThan(100);
  expect(await panel.locator("[data-rule=search]").textContent()).toBe(
    "search api 600/hour: eu 300, us 300all regions together admit at most 601 in a window: the limit of 600, and 1 by rounding",
  );
  await look("regions");
  other.stop();
  await us.getByText(/^cut for /).waitFor(soon);
  await panel.getByText("cut off from us").waitFor(soon);
  await look("regions-cut");
  await openRedis(other.port);
  await us.getByText("reachable").waitFor(soon);
  expect(wrong).toEqual([]);
  await page.goto(`${eu.url}/rules`);
  await page.locator(".explain-form input").nth(3).fill("/v1");
  await page
    .getByText(/^Shared by regions \(eu 300, us 300\): all regions together admit at most 601/)
    .waitFor(soon);
});

test("without regions there is no panel", async () => {
  writeFileSync(join(folder, "headgate.yaml"), "rules: [rules.yaml]\n");
  const door = await openDoor(["--config", join(folder, "headgate.yaml")]);
  doors.push(door);
  const { page, wrong } = await view(door);
  await page.getByRole("heading", { name: "Process" }).waitFor(soon);
  expect(await page.locator("section.regions").count()).toBe(0);
  expect(wrong).toEqual([]);
});
