import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, type Tab } from "./browser.ts";
import { type Door, openDoor } from "./door.ts";
import { ask } from "./load.ts";

const rules = `domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip, "header:X-Tenant"], rate: 2/hour}
`;

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

const soon = { timeout: 60_000 };

/** Opens a page with this width in pixels, and sends nine requests to its server. */
async function open(path: string, width: number): Promise<Page> {
  const door = await openDoor(["--rules", join(folder, "rules.yaml")]);
  doors.push(door);
  const tab = await openTab(browser, door.url, { viewport: { width, height: 900 } });
  tabs.push(tab);
  await tab.page.goto(door.url + path);
  await tab.page.waitForSelector("[data-connection=live]", soon);
  const clients = Array.from({ length: 9 }, (_, i) => ({
    method: "POST",
    path: "/login",
    client_ip: `198.51.100.${i % 3}`,
    "header:X-Tenant": `tenant-${"x".repeat(20 * (i % 3))}`,
  }));
  await ask(door.api, clients, 1);
  return tab.page;
}

/** Where each element is. */
const boxes = (page: Page, selector: string) =>
  page.locator(selector).evaluateAll((all) =>
    all.map((e) => {
      const { left, right, top, bottom, width } = e.getBoundingClientRect();
      return { left, right, top, bottom, width };
    }),
  );

test("each heading of the decisions is above its column", async () => {
  const page = await open("/events", 1440);
  await expect.poll(() => page.locator(".events-table tbody tr").count(), soon).toBe(9);
  const headings = await boxes(page, ".events-table thead th");
  const cells = await boxes(page, ".events-table tbody tr:first-child td");
  expect(headings.length).toBe(7);
  expect(cells.map(({ left, right }) => [left, right])).toEqual(
    headings.map(({ left, right }) => [left, right]),
  );
  // The text is aligned the same way as in the cells.
  const align = (selector: string) =>
    page.locator(selector).evaluateAll((all) => all.map((e) => getComputedStyle(e).textAlign));
  const sides = (all: string[]) => all.map((side) => (side === "start" ? "left" : side));
  expect(sides(await align(".events-table tbody tr:first-child td"))).toEqual(
    sides(await align(".events-table thead th")),
  );
});

test("on a phone a decision shows its key and its request", async () => {
  const page = await open("/events", 390);
  await expect.poll(() => page.locator(".events-table tbody tr").count(), soon).toBe(9);
  for (const label of ["Key", "Request"]) {
    const [cell] = await boxes(page, `.events-table tbody tr:first-child td[data-label=${label}]`);
    expect(cell!.width, label).toBeGreaterThan(200);
    expect([cell!.left >= 0, cell!.right <= 390], label).toEqual([true, true]);
    const shown = await page
      .locator(`.events-table tbody tr:first-child td[data-label=${label}]`)
      .evaluate((e) => getComputedStyle(e, "::before").content);
    expect(shown).toContain(label);
  }
});

test("a table that is cut off fades at that edge", async () => {
  const page = await open("/events", 760); // below it, rows are cards
  const table = page.getByRole("region", { name: "Table of decisions" });
  await table.waitFor(soon);
  const cue = () =>
    table.evaluate((e) => ({
      cut: e.scrollWidth - e.clientWidth > 1,
      left: e.hasAttribute("data-more-left"),
      right: e.hasAttribute("data-more-right"),
      fades: getComputedStyle(e).maskImage !== "none",
    }));
  await expect.poll(cue, soon).toEqual({ cut: true, left: false, right: true, fades: true });
  await table.evaluate((e) => e.scrollTo({ left: e.scrollWidth, behavior: "instant" }));
  await expect.poll(cue, soon).toEqual({ cut: true, left: true, right: false, fades: true });
  await page.setViewportSize({ width: 1440, height: 900 });
  await expect.poll(cue, soon).toEqual({ cut: false, left: false, right: false, fades: false });
});

test("on a wide page there is no gap next to or below the tables", async () => {
  const page = await open("/", 1440);
  await page.locator(".offenders li").first().waitFor(soon);
  await page.locator(".health").waitFor(soon);
  const [columns] = await boxes(page, ".dash-cols");
  const panels = await boxes(page, ".dash-cols > *");
  const [health] = await boxes(page, ".health");
  expect(panels.length).toBe(2);
  expect(panels[0]!.top).toBe(panels[1]!.top);
  expect(panels[1]!.left - panels[0]!.right).toBeLessThanOrEqual(24);
  // The status panels come below both, over the whole width.
  expect(health!.top - columns!.bottom).toBeLessThanOrEqual(32);
  expect(health!.width).toBe(columns!.width);
});

test.each(["/", "/events"])("pause and resume have the same labels: %s", async (path) => {
  const page = await open(path, 1440);
  for (const name of ["Pause", "Resume", "Pause"]) {
    await page.getByRole("button", { name, exact: true }).click();
  }
  await page.getByRole("button", { name: "Resume", exact: true }).waitFor(soon);
});
