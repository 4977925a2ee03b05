import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, type Tab } from "./browser.ts";
import { type Door, openDoor } from "./door.ts";

/** Text that a page must show but never run. Each would set the title if it ran. */
const img = `<img src=x onerror="document.title='obeyed'">`;
const script = `</td></script><script>document.title='obeyed'</script>`;
const url = `javascript:document.title='obeyed'`;
const quotes = `"'><svg onload=document.title='obeyed'>&lt;b&gt;`;
const turned = "\u202Egnp.exe\u202C \u2066x\u2069";
const long = `<u class=obeyed>${"x".repeat(10_000)}</u>`;
const hostile = [img, script, url, quotes, turned, long];

/** Names of rules cannot contain markup: loading such rules fails. */
const rules = `domain: ${JSON.stringify(img)}
limits:
  - name: javascript:document.title
    description: ${JSON.stringify(script)}
    match: {path: /hostile/**}
    key: ["header:User-Agent"]
    rate: 1/hour
  - name: quotes
    description: ${JSON.stringify(url)}
    match: {path: ${JSON.stringify(`/${quotes}/**`)}}
    rate: 5/hour
`;

let browser: Browser;
let folder: string;
const doors: Door[] = [];
const tabs: Tab[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "headgate-e2e-"));
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

async function open(text: string, viewport = { width: 1440, height: 900 }) {
  const file = join(folder, "rules.yaml");
  writeFileSync(file, text);
  const door = await openDoor(["--rules", file]);
  doors.push(door);
  const tab = await openTab(browser, door.url, { viewport });
  tabs.push(tab);
  return { door, ...tab };
}

/** Returns elements and links that only hostile text could have created. */
const obeyed = (page: Page) =>
  page.evaluate(() => [
    ...(document.title.includes("obeyed") ? [document.title] : []),
    ...[...document.querySelectorAll("main img, main script, main .obeyed, main svg[onload], [onerror]")].map(
      (e) => e.outerHTML,
    ),
    ...[...document.querySelectorAll("a[href]")]
      .map((a) => a.getAttribute("href")!)
      .filter((h) => /^\s*javascript:/i.test(h)),
  ]);

test("names, keys and paths that are markup are shown as text", async () => {
  const { door, page, wrong } = await open(rules);
  await page.goto(`${door.url}/events`);
  await page.waitForSelector("[data-connection=live]", soon);
  const ask = (method: string, path: string, agent: string) =>
    fetch(`${door.api}/v1/check`, {
      method: "POST",
      body: JSON.stringify({ domain: img, attributes: { method, path, "header:User-Agent": agent } }),
    });
  for (const [i, text] of hostile.entries())
    for (let times = 0; times < 2; times++) await ask("GET", `/hostile/${text}`, `${i}${text}`);
  await ask(img, `/${quotes}/last`, "");
  await page.locator(".events-table tbody tr", { hasText: "/last" }).waitFor(soon);
  const events = (await page.locator(".events-table").textContent())!;
  for (const text of [img, script, url, quotes, "\\u202egnp.exe\\u202c \\u2066x\\u2069"])
    expect(events).toContain(text);
  expect(events).not.toContain(turned); // which would be obeyed
  expect(await obeyed(page)).toEqual([]);

  await page.goto(door.url);
  await page.locator(".offenders li").first().waitFor(soon);
  const shown = (await page.locator("main").textContent())!;
  for (const text of [img, script, url]) expect(shown).toContain(text);
  expect(await obeyed(page)).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(1440);

  await page.goto(`${door.url}/rules`);
  await page.locator(".rules-table tbody tr").first().waitFor(soon);
  const table = (await page.locator("main").textContent())!;
  for (const text of [img, script, url, quotes]) expect(table).toContain(text);
  expect(await obeyed(page)).toEqual([]);
  await page.goto(`${door.url}/keys`);
  await page.waitForSelector("main", soon);
  expect(await obeyed(page)).toEqual([]);
  expect(wrong).toEqual([]);
});
