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

const views = [
  ["light", 1440],
  ["dark", 1440],
  ["light", 390],
  ["dark", 390],
] as const;

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

test("a spammer is announced on the dashboard", async () => {
  const door = await openDoor(["--config", join(folder, "headgate.yaml")]);
  doors.push(door);
  const tab = await openTab(browser, door.url, {
    reducedMotion: "reduce",
    bypassCSP: true, // for axe, which is brought in from outside
  });
  tabs.push(tab);
  const { page, wrong } = tab;
  await page.goto(door.url);
  const warning = (text: RegExp) => page.locator("[data-warning=key_refused]").filter({ hasText: text });
  const refused = /api\/login refused \d+ of \d+ requests of one key in 5s/;
  const spam = Array.from({ length: 10 }, () => [
    { method: "POST", path: "/login", client_ip: "198.51.100.1" },
    { path: "/v1", "header:User-Agent": hostile },
  ]).flat();
  for (const [colorScheme, width] of views) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    // It goes on: a warning ends when its cause does.
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
    await expect
      .poll(() => page.evaluate(() => document.documentElement.scrollWidth))
      .toBeLessThanOrEqual(width);
    expect(await violations(page), `${colorScheme}, ${width} pixels`).toEqual([]);
    if (process.env.HEADGATE_SCREENSHOTS) {
      await page.screenshot({ path: `screenshots/warnings-${colorScheme}-${width}.png` });
    }
  }

  await page.goto(`${door.url}/rules`);
  expect(await page.title()).not.toContain("obeyed");
  expect(wrong).toEqual([]);
});
