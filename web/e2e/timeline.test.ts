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
`;

const soon = { timeout: 60_000 };

let browser: Browser;
let folder: string;
const doors: Door[] = [];
const tabs: Tab[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "headgate-e2e-"));
  writeFileSync(join(folder, "rules.yaml"), rules);
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

const login = (n: number) =>
  Array.from({ length: n }, () => ({ method: "POST", path: "/login", client_ip: "198.51.100.1" }));

test.each([
  ["light", 1440],
  ["dark", 1440],
  ["light", 390],
  ["dark", 390],
] as const)("a followed key shows its requests as they come: %s, %i pixels", async (colorScheme, width) => {
  const door = await openDoor(["--rules", join(folder, "rules.yaml")]);
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
  await page.goto(`${door.url}/keys#domain=api&rule=login&key=198.51.100.1`);
  await page.getByRole("button", { name: "Peek", exact: true }).click();
  await page.getByRole("button", { name: "Follow 198.51.100.1 (login)" }).click();
  const picture = page.getByRole("img", { name: /^Requests in 5 minutes/ });
  await picture.waitFor(soon);
  await ask(door.api, login(3), 1);
  await expect
    .poll(() => picture.getAttribute("aria-label"), soon)
    .toContain("3 allowed, 0 refused, at least 2 of 5");
  await ask(door.api, login(6), 1);
  await expect
    .poll(() => picture.getAttribute("aria-label"), soon)
    .toContain("5 allowed, 4 refused, at least 0 of 5");
  await look("timeline");
  await page.getByText("1 hour", { exact: true }).click();
  await page.getByRole("img", { name: /^Requests in 60 minutes: 5 allowed, 4 refused/ }).waitFor(soon);
  await page.getByRole("dialog").getByRole("button", { name: "Close", exact: true }).last().click();

  // It is listed, and can be looked at and stopped there.
  await page.getByRole("heading", { name: "Followed keys" }).waitFor(soon);
  await look("followed");
  await page.getByRole("button", { name: "Show the last hour of 198.51.100.1 (login)" }).click();
  await page.getByRole("button", { name: "Stop following" }).click();
  await page.getByText("198.51.100.1 (login) is no longer followed.").waitFor(soon);
  await page.getByRole("heading", { name: "Followed keys" }).waitFor({ ...soon, state: "detached" });
  expect(wrong).toEqual([]);
});
