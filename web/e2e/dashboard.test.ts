import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, type Tab, violations } from "./browser.ts";
import { type Door, openDoor } from "./door.ts";
import { ask, emptyTally, note } from "./load.ts";

const rules = `domain: api
limits:
  - name: login
    description: Slows down guessing of passwords.
    match: {path: /login}
    key: [client_ip]
    rate: 5/hour
    algorithm: sliding_window
  - name: per-key
    match: {path: /v1/**}
    key: ["header:X-Api-Key"]
    rate: 20/hour
`;

let browser: Browser;
let folder: string;
let upstream: Server;
const doors: Door[] = [];
const tabs: Tab[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "headgate-e2e-"));
  writeFileSync(join(folder, "rules.yaml"), rules);
  upstream = createServer((_request, response) => response.end("hello"));
  await new Promise<void>((listening) => upstream.listen(0, "127.0.0.1", listening));
  browser = await openBrowser();
});

afterEach(async () => {
  for (const { page } of tabs.splice(0)) await page.context().close();
  for (const door of doors.splice(0)) await door.stop();
});

afterAll(async () => {
  await browser?.close();
  upstream?.closeAllConnections();
  upstream?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts a server with the rules above, or with those in args. */
async function start(...args: string[]): Promise<Door> {
  const door = await openDoor(
    args.includes("--rules") ? args : ["--rules", join(folder, "rules.yaml"), ...args],
  );
  doors.push(door);
  return door;
}

async function open(door: Door, path: string, options: BrowserContextOptions = {}): Promise<Tab> {
  const tab = await openTab(browser, door.url, options);
  tabs.push(tab);
  await tab.page.goto(door.url + path);
  return tab;
}

/** A generous timeout: the machine may be small and busy. */
const soon = { timeout: 60_000 };

const tile = async (page: Page, id: string): Promise<string> =>
  (await page.locator(`[data-tile=${id}] .tile-value`).textContent()) ?? "";

const live = (page: Page) => page.waitForSelector("[data-connection=live]", soon);

const button = (page: Page, name: string | RegExp) =>
  page.getByRole("button", typeof name === "string" ? { name, exact: true } : { name });

const dialog = (page: Page) => page.getByRole("dialog");

/** The dialog text of a key that has used its limit of 5. */
const usedUp = (page: Page) => dialog(page).locator("dd", { hasText: /^5 of 5$/ });

const login = (n: number, client = "198.51.100.1") =>
  Array.from({ length: n }, () => ({ method: "POST", path: "/login", client_ip: client }));

test("without requests the page shows how to send one, and then shows it", async () => {
  const door = await start();
  const { page, wrong } = await open(door, "/");
  await live(page);
  await page.getByRole("heading", { name: "No requests yet" }).waitFor(soon);
  const command = await page.locator(".command pre").last().textContent();
  expect(command).toContain(`${door.api}/v1/check`);
  const [, body] = /-d '(.*)'$/.exec(command!)!;
  await fetch(`${door.api}/v1/check`, { method: "POST", body: body! });
  await expect.poll(() => page.locator("[data-tile=requests]").count(), soon).toBe(1);
  await expect.poll(() => tile(page, "allowed"), soon).toBe("1");
  expect(wrong).toEqual([]);
});

test("the numbers match the load, as it happens", async () => {
  const door = await start();
  const { page, wrong } = await open(door, "/");
  await live(page);
  const some = Array.from({ length: 400 }, (_, i) =>
    i % 4 === 0
      ? { method: "POST", path: "/login", client_ip: `198.51.100.${i % 7}` }
      : { method: "GET", path: "/v1/items", "header:X-Api-Key": `customer-${i % 11}` },
  );
  const tally = await ask(door.api, some);
  expect(tally.refused).toBeGreaterThan(0);
  await expect.poll(() => tile(page, "requests"), soon).toBe("400");
  expect(await tile(page, "allowed")).toBe(String(tally.allowed));
  expect(await tile(page, "refused")).toBe(String(tally.refused));
  expect(await tile(page, "near")).toBe(String(tally.near));

  // More requests while the page is open; then by rule, and as a table.
  const more = await ask(door.api, login(9, "203.0.113.5"));
  expect([more.allowed, more.refused]).toEqual([5, 4]);
  await expect.poll(() => tile(page, "requests"), soon).toBe("409");
  expect(await tile(page, "refused")).toBe(String(tally.refused + 4));
  const row = page.locator('[data-rule="api/login"] td');
  expect(await row.first().textContent()).toMatch(/^109/);
  await page.getByText("Show as table").click();
  const cells = await page
    .locator(".as-table tbody tr")
    .evaluateAll((rows) =>
      rows.map((r) => [...r.querySelectorAll("td")].map((td) => Number(td.textContent?.replaceAll(",", "")))),
    );
  const sums = cells.reduce((sum, [allowed, refused]) => [sum[0]! + allowed!, sum[1]! + refused!], [0, 0]);
  expect(sums).toEqual([tally.allowed + 5, tally.refused + 4]);

  // A page that is opened later has the same past.
  const later = await open(door, "/");
  await expect.poll(() => tile(later.page, "requests"), soon).toBe("409");
  expect(await later.page.locator(".chart canvas").count()).toBe(1);
  expect([...wrong, ...later.wrong]).toEqual([]);
});

/** One rule for each outcome. */
const mixedRules = `domain: api
limits:
  - {name: login, match: {path: /login}, key: [client_ip], rate: 12/hour}
  - {name: thumbnails, match: {path: /thumbnails}, key: [client_ip], rate: 1/minute, burst: 6, algorithm: leaky_bucket}
  - {name: trap, match: {path: /trap}, key: [client_ip], rate: 3/hour, on_limit: {action: shadow_ban, body: gotcha}}
  - {name: trial, match: {path: /search}, key: [client_ip], rate: 9/hour, mode: shadow}
`;

test("under a mixed load every number is what the callers counted", async () => {
  writeFileSync(join(folder, "mixed.yaml"), mixedRules);
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const door = await start(
    ...["--rules", join(folder, "mixed.yaml"), "--listen-proxy", "127.0.0.1:0"],
    ...["--upstream", target, "--trusted-proxies", "127.0.0.0/8"],
  );
  const { page, wrong } = await open(door, "/");
  await live(page);
  const client = (i: number) => `198.51.100.${(i * i) % 7}`;
  const tally = emptyTally();
  const through = async (path: string, n: number) => {
    for (let i = 0; i < n; i++) {
      const response = await fetch(door.proxy + path, { headers: { "X-Forwarded-For": client(i) } });
      const trapped = (await response.text()) === "gotcha";
      note(
        tally,
        trapped ? "shadow_banned" : response.status === 429 ? "refused" : "allowed",
        path,
        client(i),
      );
    }
  };
  const check = (path: string, n: number) =>
    ask(
      door.api,
      Array.from({ length: n }, (_, i) => ({ path, client_ip: client(i) })),
      4,
      tally,
    );
  await Promise.all([
    ...[through("/login", 60), through("/trap", 20), check("/login", 60)],
    ...[check("/thumbnails", 50), check("/trap", 20), check("/search", 60)],
  ]);
  await expect.poll(() => tile(page, "requests"), soon).toBe(String(tally.requests));
  expect(tally.requests).toBe(270);
  for (const outcome of ["allowed", "refused", "delayed"] as const) {
    expect(tally[outcome], outcome).toBeGreaterThan(0);
    expect(await tile(page, outcome)).toBe(String(tally[outcome]));
  }
  expect(Math.min(tally.shadow_banned, tally.shadow_refused)).toBeGreaterThan(0);
  expect(await tile(page, "shadowed")).toBe(String(tally.shadow_banned + tally.shadow_refused));

  // By rule: requests, allowed, refused, delayed, shadowed.
  for (const [rule, path] of Object.entries({
    login: "/login",
    thumbnails: "/thumbnails",
    trap: "/trap",
    trial: "/search",
  })) {
    const n = tally.byPath.get(path)!;
    const of = (...outcomes: Parameters<typeof n.get>[0][]) =>
      outcomes.reduce((sum, outcome) => sum + (n.get(outcome) ?? 0), 0);
    const cells = await page.locator(`[data-rule="api/${rule}"] td`).evaluateAll((all) =>
      // The text below the number is a share.
      all.map((cell) => Number(cell.firstChild?.textContent)),
    );
    expect(cells.slice(0, 5), rule).toEqual([
      of(...n.keys()),
      of("allowed"),
      of("refused"),
      of("delayed"),
      of("shadow_banned", "shadow_refused"),
    ]);
  }

  // Top keys: three pages, read in turn, because the first may still change.
  const top = new Map<string, number>();
  const paths: Record<string, string> = {
    login: "/login",
    thumbnails: "/thumbnails",
    trap: "/trap",
    trial: "/search",
  };
  const keys = page.locator(".panel", { has: page.getByRole("heading", { name: "Top keys" }) });
  await expect
    .poll(async () => {
      const shown = await keys
        .locator(".offenders li")
        .evaluateAll((all) =>
          all.map((li) => [li.dataset.rule!, li.dataset.key!, li.querySelector("b")!.textContent!] as const),
        );
      for (const [rule, key, n] of shown) top.set(`${paths[rule]} ${key}`, Number(n));
      const next = keys.getByRole("button", { name: "Next" });
      const previous = keys.getByRole("button", { name: "Previous" });
      if (await next.isEnabled()) await next.click();
      else while (await previous.isEnabled()) await previous.click();
      return [...top].sort();
    }, soon)
    .toEqual([...tally.stopped].sort());
  expect(wrong).toEqual([]);
});

test("ban a key, and the proxy refuses it; undo, and it does not", async () => {
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const free = "127.0.0.1:0";
  const door = await start("--listen-proxy", free, "--upstream", target, "--trusted-proxies", "127.0.0.0/8");
  const through = async (key: string) =>
    (await fetch(`${door.proxy}/v1/items`, { headers: { "X-Api-Key": key } })).status;
  for (let i = 0; i < 21; i++) await through("greedy");
  expect(await through("greedy")).toBe(429);
  expect(await through("modest")).toBe(200);

  const { page, wrong } = await open(door, "/");
  const greedy = page.locator('.offenders li[data-key="greedy"]');
  await greedy.waitFor(soon);
  await greedy.getByRole("button", { name: /^Reset/ }).click();
  await dialog(page).getByRole("button", { name: "Reset" }).click();
  await page.getByText("was reset").waitFor(soon);
  expect(await through("greedy")).toBe(200);

  await greedy.getByRole("button", { name: /^Ban/ }).click();
  await dialog(page).getByLabel("Duration").selectOption("10m");
  await dialog(page)
    .getByLabel(/^Reason/)
    .fill("scrapes us");
  await dialog(page).getByRole("button", { name: "Ban" }).click();
  await page.getByText(/greedy .* is banned until/).waitFor(soon);
  expect(await through("greedy")).toBe(429);
  expect(await through("modest")).toBe(200);

  const rules = await open(door, "/rules");
  await rules.page.getByLabel("Value of path").fill("/v1/items");
  await rules.page.getByLabel("Attribute 3").fill("header:X-Api-Key");
  await rules.page.getByLabel("Value of header:X-Api-Key").fill("greedy");
  const explained = rules.page.locator(".explain-answer .explained li", { hasText: "greedy" });
  await explained.getByText(/banned until .*; 1 of 20 used, 19 remaining, available again in/).waitFor(soon);

  const keys = await open(door, "/keys");
  const banned = keys.page.getByRole("row", { name: /greedy/ });
  await banned.waitFor(soon);
  expect(await banned.textContent()).toContain("scrapes us");
  await banned.getByRole("button", { name: /^Unban/ }).click();
  await keys.page.getByText("is no longer banned").waitFor(soon);
  expect(await through("greedy")).toBe(200);
  await button(keys.page, "Undo").click();
  await keys.page.getByText("is banned again").waitFor(soon);
  expect(await through("greedy")).toBe(429);
  expect([...wrong, ...rules.wrong, ...keys.wrong]).toEqual([]);
});

test("inspect a key, grant it requests, override its limit", async () => {
  const door = await start();
  const { allowed } = await ask(door.api, login(7));
  expect(allowed).toBe(5);
  const { page, wrong } = await open(door, "/keys#domain=api&rule=login&key=198.51.100.1");
  await button(page, "Peek").click();
  await usedUp(page).waitFor(soon);
  await dialog(page)
    .getByRole("button", { name: /^Grant/ })
    .click();
  await dialog(page).getByLabel("Extra requests").fill("x");
  await dialog(page).getByRole("button", { name: "Grant" }).click();
  await dialog(page).getByText("a whole number").waitFor(soon);
  await dialog(page).getByLabel("Extra requests").fill("2");
  await page.keyboard.press("Enter");
  await page.getByText("was granted 2 extra requests").waitFor(soon);
  expect((await ask(door.api, login(3))).allowed).toBe(2);

  await button(page, /^Override/).click();
  await dialog(page).getByLabel("Rate").fill("100/hour");
  await dialog(page).getByRole("button", { name: "Override" }).click();
  await page.getByText("now has the limit 100/hour").waitFor(soon);
  await page.getByRole("row", { name: /100\/hour/ }).waitFor(soon);
  expect((await ask(door.api, login(3))).allowed).toBe(3);
  expect(wrong).toEqual([]);
});

test("a thousand rules: found, sorted, page by page, explained", async () => {
  const many = join(folder, "many");
  mkdirSync(many, { recursive: true });
  for (let f = 0; f < 10; f++) {
    const list = Array.from(
      { length: 100 },
      (_, i) =>
        `  - {name: rule-${f * 100 + i}, match: {path: /p${f * 100 + i}/**}, key: [client_ip], rate: ${i + 1}/minute}`,
    );
    writeFileSync(join(many, `${f}.yaml`), `domain: api\nlimits:\n${list.join("\n")}\n`);
  }
  const door = await start("--rules", many);
  const { page, wrong } = await open(door, "/rules");
  await page.getByText("1,000 of 1,000 rules").waitFor(soon);
  expect(await page.locator(".rules-table tbody tr").count()).toBe(50);
  await button(page, "Next").first().click();
  await page.getByText("51–100 of 1,000").waitFor(soon);
  await button(page, "Limit").click();
  await expect
    .poll(() => page.locator(".rules-table thead th").nth(1).getAttribute("aria-sort"), soon)
    .toBe("ascending");
  await page.keyboard.press("Escape");
  await page.getByLabel("Filter rules").fill("rule-777");
  await page.getByText("1 of 1,000 rules").waitFor(soon);
  expect(await page.locator(".rules-table tbody tr").textContent()).toContain("many/7.yaml:80");
  await page.getByLabel("Value of path").fill("/p123/x");
  await page.getByText("1 rule applies").waitFor(soon);
  const applies = page.locator(".explain-answer .explained").first();
  expect(await applies.textContent()).toMatch(/rule-123.*24\/minute.*1\.yaml:26/);
  await ask(
    door.api,
    Array.from({ length: 1000 }, (_, i) => ({ path: `/p${i}/x`, client_ip: "198.51.100.1" })),
  );
  await page.goto(`${door.url}/`);
  await expect.poll(() => tile(page, "requests"), soon).toBe("1,000");
  expect(wrong).toEqual([]);
});

test("events are single decisions that match the filter", async () => {
  const door = await start();
  const { page, wrong } = await open(door, "/events#outcome=refused");
  await live(page);
  await ask(door.api, login(8), 1);
  await expect.poll(() => page.locator(".events-table tbody tr").count(), soon).toBe(3);
  expect(await page.locator(".events-table tbody tr").first().textContent()).toMatch(
    /refused.*login.*198\.51\.100\.1/,
  );
  await page.getByLabel("Outcome").selectOption("allowed");
  await expect.poll(() => page.locator(".events-table tbody tr").count(), soon).toBe(0);
  await live(page);
  await ask(door.api, login(2, "203.0.113.1"), 1);
  await expect.poll(() => page.locator(".events-table tbody tr").count(), soon).toBe(2);
  await button(page, "Pause").click();
  expect(new URL(page.url()).hash).toBe("#outcome=allowed");
  expect(wrong).toEqual([]);
});

test("when the server stops the page says so, and it reconnects", async () => {
  const first = await start();
  const { page } = await open(first, "/");
  await live(page);
  await first.stop();
  await page.waitForSelector("[data-connection=lost]", soon);
  await page.getByText(/retrying in/).waitFor(soon);
  // There were no requests before, and the current state is unknown.
  await page.getByText("The server does not respond.").waitFor(soon);
  expect(await page.getByRole("heading", { name: "No requests yet" }).count()).toBe(0);
  await expect
    .poll(() => page.locator(".health .badge").allTextContents(), soon)
    .toEqual(Array.from({ length: 3 }, () => "unknown"));
  const second = await start("--listen-admin", new URL(first.url).host);
  // Unless it has just reconnected.
  await button(page, "Retry now")
    .click({ timeout: 2000 })
    .catch(() => {});
  await live(page);
  await ask(second.api, login(6));
  await expect.poll(() => tile(page, "refused"), soon).toBe("1");
});

test("when the store is down the page says so", async () => {
  const door = await start("--store", "redis://127.0.0.1:1");
  await ask(door.api, login(20), 4);
  const { page, wrong } = await open(door, "/");
  await page.getByText("The store does not respond.").waitFor(soon);
  await page.getByText(/decisions without the store/).waitFor(soon);
  if (process.env.HEADGATE_SCREENSHOTS)
    await page.screenshot({ path: "screenshots/store-down.png", fullPage: true });
  expect(wrong).toEqual([]);
});

test("behind a token: with it, all of the page works", async () => {
  const config = join(folder, "token.yaml");
  writeFileSync(config, "rules: [rules.yaml]\nadmin: {token: open-sesame-open-sesame}\n");
  const door = await openDoor(["--config", config]);
  doors.push(door);
  const { page } = await open(door, "/", {
    httpCredentials: { username: "any", password: "open-sesame-open-sesame" },
  });
  await live(page);
  await ask(door.api, login(6));
  await expect.poll(() => tile(page, "refused"), soon).toBe("1");
  await page.locator(".offenders li").first().getByRole("button", { name: /^Peek/ }).click();
  await usedUp(page).waitFor(soon);
});

test("queued requests are shown, and can be dropped", async () => {
  const slow =
    "domain: api\nlimits:\n  - {name: orders, key: [client_ip], rate: 1/hour, on_limit: {action: queue}}\n";
  writeFileSync(join(folder, "slow.yaml"), slow);
  const config = join(folder, "queue.yaml");
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  writeFileSync(
    config,
    `rules: [slow.yaml]\nqueue: {path: queue.db}\nproxy: {listen: "127.0.0.1:0", upstream: "${target}"}\n`,
  );
  const door = await openDoor(["--config", config, "--upstream", target]);
  doors.push(door);
  const send = async () => (await fetch(`${door.proxy}/orders`, { method: "POST", body: "one" })).status;
  expect([await send(), await send(), await send()]).toEqual([200, 202, 202]);
  const { page, wrong } = await open(door, "/queue");
  const queue = page.locator('[data-queue="api/orders"] td');
  await expect.poll(() => queue.first().textContent(), soon).toBe("2");
  const items = page.getByRole("checkbox", { name: /^Select (?!all)/ });
  await expect.poll(() => items.count(), soon).toBe(2);
  expect(await page.getByText("127.0.0.1", { exact: true }).count()).toBe(2);
  await items.first().check();
  await button(page, /^Drop 1/).click();
  await dialog(page).getByRole("button", { name: "Drop" }).click();
  await page.getByText("1 request dropped.").waitFor(soon);
  await expect.poll(() => queue.first().textContent(), soon).toBe("1");
  await page.goto(door.url);
  await expect.poll(() => tile(page, "queued"), soon).toBe("2");
  expect(wrong).toEqual([]);
});

test("by keyboard alone", async () => {
  const door = await start();
  await ask(door.api, login(6));
  const { page, wrong } = await open(door, "/");
  await page.locator("[data-tile=requests]").waitFor(soon);
  await page.keyboard.press("?");
  await dialog(page).getByRole("heading", { name: "Keyboard shortcuts" }).waitFor(soon);
  await page.keyboard.press("Escape");
  await expect.poll(() => dialog(page).count(), soon).toBe(0);
  await page.keyboard.press("1");
  expect(await page.getByLabel("1 min", { exact: true }).isChecked()).toBe(true);
  await page.keyboard.press("p");
  await page.getByText("Paused").waitFor(soon);
  // A dialog returns the focus to the button that opened it.
  const ban = page.locator(".offenders li").first().getByRole("button", { name: /^Ban/ });
  await ban.focus();
  await page.keyboard.press("Enter");
  await dialog(page).waitFor(soon);
  await page.keyboard.press("Escape");
  await expect.poll(() => dialog(page).count(), soon).toBe(0);
  expect(await ban.evaluate((b) => b === document.activeElement)).toBe(true);
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.waitForURL(`${door.url}/rules`, soon);
  await page.locator(".rules-table").waitFor(soon);
  await page.keyboard.press("/");
  await page.keyboard.type("per");
  await page.getByText("1 of 2 rules").waitFor(soon);
  expect(wrong).toEqual([]);
});

/** The last two check the dashboard only: the other pages share its styles. */
const looks = [
  ["light", 1440, "all"],
  ["dark", 390, "all"],
  ["dark", 1440, "one"],
  ["light", 390, "one"],
] as const;

test.each(looks)(
  "axe finds nothing, nothing is too wide: %s, %d pixels",
  async (colorScheme, width, which) => {
    const name = `a-rule-${"with-a-name-that-something-has-generated-".repeat(2)}0`;
    writeFileSync(
      join(folder, "long.yaml"),
      `${rules}  - {name: ${name}, match: {path: /long}, key: [client_ip, "header:X-Tenant"], rate: 2/hour}\n`,
    );
    const door = await start("--rules", join(folder, "long.yaml"));
    const long = { path: "/long", client_ip: "203.0.113.1", "header:X-Tenant": "x".repeat(140) };
    await ask(door.api, [...login(9), ...login(3, "2001:db8:1:2:3:4:5:6"), long, long, long]);
    await fetch(`${door.url}/v1/keys/ban`, {
      method: "POST",
      body: JSON.stringify({
        domain: "api",
        rule: "login",
        key: ["203.0.113.9"],
        for: "1h",
        reason: "scrapes",
      }),
    });
    const { page, wrong } = await open(door, "/", {
      colorScheme,
      viewport: { width, height: 900 },
      reducedMotion: "reduce",
      bypassCSP: true, // for axe, which is brought in from outside
    });
    const look = async (name: string) => {
      expect(await violations(page), name).toEqual([]);
      expect(await page.getByText(/: loading …/).count(), name).toBe(0);
      expect(await page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(
        width,
      );
      if (process.env.HEADGATE_SCREENSHOTS) {
        await page.screenshot({ path: `screenshots/${name}-${colorScheme}-${width}.png`, fullPage: true });
      }
    };
    await page.locator(".offenders li").first().waitFor(soon);
    const background = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    expect(background).toBe(colorScheme === "dark" ? "rgb(14, 18, 20)" : "rgb(246, 247, 248)");
    await page.getByText("Show as table").click();
    await look("dashboard");
    if (which === "one") return expect(wrong).toEqual([]);
    await page.locator(".offenders li").first().getByRole("button", { name: /^Peek/ }).click();
    await usedUp(page).waitFor(soon);
    await look("peek");
    for (const [path, ready] of [
      ["/rules", ".explained li"],
      ["/keys", "text=scrapes"],
      ["/queue", ".nothing"],
      ["/events", ".nothing"],
    ] as const) {
      await page.goto(door.url + path);
      await page.waitForSelector(ready, soon);
      await look(path.slice(1));
    }
    expect(wrong).toEqual([]);
  },
);
