import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, type Tab, violations } from "./browser.ts";
import { type Door, openDoor } from "./door.ts";
import { ask } from "./load.ts";

const rules = `domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 5/hour, algorithm: sliding_window}
  - {name: per-agent, match: {path: /v1}, key: ["header:User-Agent"], rate: 5/365d}
`;

/** A key that a page must show but never run. */
const hostile = `<img src=x onerror="document.title='obeyed'">`;

const soon = { timeout: 60_000 };

let browser: Browser;
let folder: string;
const doors: Door[] = [];
const tabs: Tab[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "headgate-e2e-"));
  writeFileSync(join(folder, "rules.yaml"), rules);
  writeFileSync(join(folder, "headgate.yaml"), "rules: [rules.yaml]\nwarnings: on\n");
  browser = await openBrowser();
});

afterEach(async () => {
  for (const { page } of tabs.splice(0)) await page.context().close();
  for (const door of doors.splice(0)) await door.stop();
});

afterAll(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

test.each([
  ["light", 1440],
  ["dark", 1440],
  ["light", 390],
  ["dark", 390],
] as const)("a spammer is announced on the dashboard: %s, %i pixels", async (colorScheme, width) => {
  const door = await openDoor(["--config", join(folder, "headgate.yaml")]);
  doors.push(door);
  const tab = await openTab(browser, door.url, {
    colorScheme,
    viewport: { width, height: 900 },
    reducedMotion: "reduce",
    bypassCSP: true, // for axe, which is brought in from outside
  });
  tabs.push(tab);
  const { page, wrong } = tab;
  const look = async (name: string) => {
    expect(await violations(page), name).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(width);
    if (process.env.HEADGATE_SCREENSHOTS) {
      await page.screenshot({ path: `screenshots/${name}-${colorScheme}-${width}.png` });
    }
  };
  await page.goto(door.url);
  const warning = (text: RegExp) => page.locator("[data-warning=key_refused]").filter({ hasText: text });
  const refused = /api\/login refused \d+ of \d+ requests of one key in 5s/;
  const spam = Array.from({ length: 10 }, () => [
    { method: "POST", path: "/login", client_ip: "198.51.100.1" },
    { path: "/v1", "header:User-Agent": hostile },
  ]).flat();
  await expect
    .poll(
      async () => {
        await ask(door.api, spam, 4);
        return (await warning(refused).count()) + (await warning(/api\/per-agent/).count());
      },
      { ...soon, interval: 500 },
    )
    .toBe(2);
  expect(await warning(refused).textContent()).toContain("198.51.100.1");
  expect(await warning(/api\/per-agent/).textContent()).toContain(hostile);
  await look("warnings");

  await page.goto(`${door.url}/rules`);
  expect(await page.title()).not.toContain("obeyed");
  expect(wrong).toEqual([]);
});
