import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, violations } from "./browser.ts";
import { type Door, openDoor } from "./door.ts";

let door: Door;
let browser: Browser;

beforeAll(async () => {
  [door, browser] = await Promise.all([openDoor(), openBrowser()]);
});

// A page that keeps playing would slow down the next test.
afterEach(async () => {
  await Promise.all(browser.contexts().map((context) => context.close()));
});

afterAll(async () => {
  await browser?.close();
  await door?.stop();
});

/** The row of an algorithm in the table of results. */
async function row(page: Page, algorithm: string): Promise<string[]> {
  return page.locator(`tr[data-algorithm=${algorithm}] td`).allTextContents();
}

/** Waits until the row of an algorithm starts with these. */
const shows = (page: Page, algorithm: string, first: readonly string[]) =>
  expect
    .poll(async () => (await row(page, algorithm)).slice(0, first.length), { message: algorithm })
    .toEqual(first);

const ready = (page: Page) => page.waitForSelector(".lane");

const press = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();

const all = "token_bucket,leaky_bucket,fixed_window,sliding_log,sliding_window,sliding_buckets";

test("play a burst and read the counts", async () => {
  const { page, wrong } = await openTab(browser, door.url);
  await page.goto(`${door.url}/playground#kind=none&limit=5&shown=${all}`);
  await ready(page);
  await press(page, "Pause");
  await press(page, "Send 5");
  await press(page, "Send 1");
  await press(page, "Send 1");
  for (const algorithm of all.split(",")) {
    await shows(page, algorithm, ["5", "2", "0", "0", "5"]);
  }
  await expect.poll(async () => (await row(page, "token_bucket"))[6]).toBe("2.0 s");
  // A larger limit keeps the usage.
  await page.getByRole("textbox", { name: "Limit", exact: true }).fill("8");
  await expect.poll(async () => (await row(page, "sliding_log"))[5]).toBe("5 of 8");
  expect(wrong).toEqual([]);
});

test("the window boundary attack, step by step", async () => {
  const { page, wrong } = await openTab(browser, door.url, { reducedMotion: "reduce" });
  await page.goto(`${door.url}/playground#kind=boundary&limit=5&shown=fixed_window,sliding_log`);
  await ready(page);
  // With reduced motion, the page starts paused.
  expect(await page.getByRole("button", { name: "Play" }).isVisible()).toBe(true);
  expect(await page.locator(".clock").textContent()).toContain("0:00.0");
  for (let i = 0; i < 10; i++) await press(page, "Next request");
  await shows(page, "fixed_window", ["10", "0", "5", "0", "10"]);
  await shows(page, "sliding_log", ["5", "5", "0", "0", "5"]);
  await expect
    .poll(() => page.getByRole("status").first().textContent())
    .toMatch(/fixed window: allowed; sliding log: refused, retry/);
  expect(wrong).toEqual([]);
});

test("the clock runs, and pauses", async () => {
  const { page, wrong } = await openTab(browser, door.url);
  await page.goto(`${door.url}/playground#kind=steady&rate=50&speed=100`);
  await ready(page);
  await expect.poll(async () => Number((await row(page, "token_bucket"))[0])).toBeGreaterThan(50);
  await press(page, "Pause");
  const stopped = await page.locator(".clock").textContent();
  await press(page, "Restart");
  expect(stopped).not.toContain("0:00.0");
  await expect.poll(() => row(page, "token_bucket")).toContain("0 of 10");
  expect(wrong).toEqual([]);
});

test("by keyboard alone", async () => {
  const { page, wrong } = await openTab(browser, door.url, { reducedMotion: "reduce" });
  await page.goto(`${door.url}/playground#kind=none&limit=3`);
  await ready(page);
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Skip to content");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("main");
  expect(new URL(page.url()).hash).toContain("limit=3");
  await page.keyboard.press("b");
  await page.keyboard.press("h");
  await shows(page, "token_bucket", ["3", "1"]);
  // Tab reaches a button; in a field, keys are text.
  await page.getByRole("button", { name: "Send 1" }).focus();
  await page.keyboard.press("Enter");
  await shows(page, "token_bucket", ["3", "2"]);
  await page.getByLabel("Period").focus();
  await page.keyboard.press("h");
  await shows(page, "token_bucket", ["3", "2"]);
  expect(wrong).toEqual([]);
});

test("settings are in the address, and are read from it", async () => {
  const { page, wrong } = await openTab(browser, door.url);
  await page.goto(`${door.url}/playground`);
  await ready(page);
  await page.getByRole("textbox", { name: "Limit", exact: true }).fill("7");
  await page.getByLabel("Period").fill("1m");
  await expect.poll(() => new URL(page.url()).hash).toBe("#limit=7&period=1m");
  await expect.poll(() => page.locator(".code").textContent()).toContain("rate: 7/minute");
  await page.reload();
  await ready(page);
  expect(await page.getByRole("textbox", { name: "Limit", exact: true }).inputValue()).toBe("7");
  await page.getByRole("textbox", { name: "Limit", exact: true }).fill("-1");
  await expect
    .poll(() => page.getByRole("textbox", { name: "Limit", exact: true }).getAttribute("aria-invalid"))
    .toBe("true");
  expect(wrong).toEqual([]);
});

test.each([
  ["light", 1440],
  ["dark", 1440],
  ["light", 390],
  ["dark", 390],
] as const)("axe finds nothing: %s, %d pixels wide", async (colorScheme, width) => {
  const { page, wrong } = await openTab(browser, door.url, {
    colorScheme,
    viewport: { width, height: 900 },
    reducedMotion: "reduce",
    bypassCSP: true, // for axe, which is brought in from outside
  });
  await page.goto(`${door.url}/playground#kind=boundary&limit=3&shown=${all}`);
  await ready(page);
  for (let i = 0; i < 6; i++) await press(page, "Next request");
  const background = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  expect(background).toBe(colorScheme === "dark" ? "rgb(14, 18, 20)" : "rgb(246, 247, 248)");
  expect(await violations(page)).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
  if (process.env.HEADGATE_SCREENSHOTS) {
    await page.screenshot({ path: `screenshots/playground-${colorScheme}-${width}.png`, fullPage: true });
  }
  expect(wrong).toEqual([]);
});

test("the dark theme can be chosen, and is remembered", async () => {
  const { page } = await openTab(browser, door.url, { colorScheme: "light" });
  await page.goto(`${door.url}/playground`);
  await ready(page);
  await page.getByLabel("Dark").check({ force: true });
  await page.reload();
  await ready(page);
  expect(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor)).toBe(
    "rgb(14, 18, 20)",
  );
});

const folder = fileURLToPath(new URL("../../bin/playground/", import.meta.url));

/** Plays a burst on the static page. */
async function playAlone(url: string, home: string): Promise<void> {
  const { page, wrong } = await openTab(browser, home);
  await page.goto(`${url}#kind=none&limit=5`);
  await ready(page);
  await press(page, "Pause");
  await press(page, "Send 5");
  await press(page, "Send 1");
  await shows(page, "fixed_window", ["5", "1"]);
  expect(await page.locator("nav a").count()).toBe(0);
  expect(wrong).toEqual([]);
}

test("the static page, from a plain file server", async () => {
  const types: Record<string, string> = {
    html: "text/html",
    js: "text/javascript",
    css: "text/css",
    svg: "image/svg+xml",
  };
  const server = createServer((request, response) => {
    const name = new URL(request.url!, "http://localhost").pathname.slice(1) || "index.html";
    response.setHeader("Content-Type", types[name.split(".").at(-1)!] ?? "application/octet-stream");
    response.end(readFileSync(folder + name));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  try {
    await playAlone(url, url);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("the static page, from a file", async () => {
  await playAlone(`file://${folder}index.html`, "file://");
});

test("several servers: step through a lost update and its cure", async () => {
  const { page, wrong } = await openTab(browser, door.url, { reducedMotion: "reduce" });
  await page.goto(`${door.url}/playground#kind=none`);
  await ready(page);
  const race = page.getByRole("region", { name: "Several servers" });
  const steps = async (scene: string) => {
    await race.getByRole("button", { name: scene }).click();
    const next = race.getByRole("button", { name: "Next step" });
    while (await next.isEnabled()) await next.press("Enter");
    return race.locator(".race-result").textContent();
  };
  expect(await steps("Lost update")).toContain("10 of 12 allowed by fixed window, 5 in 10 s: 5 too many");
  expect(await steps("One atomic step")).toContain("5 of 12 allowed");
  const servers = race.getByRole("spinbutton", { name: "Servers" });
  await servers.fill("9");
  await expect.poll(() => race.getByText("Enter a whole number from 1 to 4").isVisible()).toBe(true);
  await race.getByLabel("How servers count").selectOption("apart");
  await servers.fill("3");
  expect(await steps("Each for itself")).toContain("10 of 12 allowed");
  expect(await violations(page)).toEqual([]);
  expect(wrong).toEqual([]);
});
