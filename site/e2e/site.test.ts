import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openBrowser, openTab, type Tab, violations } from "../../web/e2e/browser.ts";
import { pages, serve } from "./server.ts";

type Page = Tab["page"];

let browser: Awaited<ReturnType<typeof openBrowser>>;
let site: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  [site, browser] = await Promise.all([serve(), openBrowser()]);
});

afterEach(async () => {
  await Promise.all(browser.contexts().map((context) => context.close()));
});

afterAll(async () => {
  await browser?.close();
  site?.stop();
});

/** Opens a page of the site. */
async function open(path: string, options: Parameters<typeof openTab>[2] = {}) {
  const tab = await openTab(browser, site.url, { reducedMotion: "reduce", ...options });
  await tab.page.goto(`${site.url}/${path}`);
  return tab;
}

/** Opens the search with the keyboard, which a page hears once its scripts run. */
async function openSearch(page: Page) {
  const box = page.getByRole("searchbox");
  await expect
    .poll(async () => {
      await page.keyboard.press("Control+k");
      return box.isVisible();
    })
    .toBe(true);
  return box;
}

const frame = (page: Page) => page.frameLocator("iframe.playground");

test("the playground on the front page decides", async () => {
  const { page, wrong } = await open("");
  const send = frame(page).getByRole("button", { name: "Send 1", exact: true });
  for (let i = 0; i < 7; i++) await send.click();
  const counts = frame(page).locator(".lane-count");
  // The limit is 5: two of seven are refused, by both algorithms.
  await expect
    .poll(() => counts.allTextContents())
    .toEqual([expect.stringMatching(/5 allowed.*2 refused/), expect.stringMatching(/5 allowed.*2 refused/)]);
  expect(wrong).toEqual([]);
});

test("from the playground there is a way back", async () => {
  const { page, wrong } = await open("");
  await page.locator(".VPNavBar").getByRole("link", { name: "Playground" }).click();
  await page.getByRole("link", { name: "← Documentation" }).click();
  await page.getByRole("heading", { level: 1, name: "An exact rate limiter for backends" }).waitFor();
  expect(wrong).toEqual([]);
});

/** Words, and the title of a page that has to be among the first five that a search for them finds. */
const searches: [words: string, title: string][] = [
  ["redis is down", "When the store fails"],
  ["failed logins", "Charge after the answer"],
  ["nginx auth_request", "Forward-auth"],
  ["unblock a key", "Inspect and change keys"],
  ["user's midnight", "time zone"],
  ["retry-after header", "Rate limit header fields"],
  ["retry-after", "Rate limit header fields"],
  ["x-forwarded-for", "Client addresses"],
  ["charge_on", "Charge after the answer"],
  ["burst", "Algorithms"],
  ["kubernetes deployment", "Kubernetes"],
  ["token bucket burst", "Algorithms"],
  ["CL.THROTTLE", "The Redis protocol"],
  ["graphql", "Cookbook"],
  ["helm", "Kubernetes"],
  ["install", "Install"],
  ["which algorithm", "Which algorithm?"],
  ["everybody shares one count", "Troubleshooting"],
];

test("search finds pages", async () => {
  const { page, wrong } = await open("docs/");
  await page.getByRole("button", { name: "Search" }).click();
  const results = page.locator(".VPLocalSearchBox .results .titles");
  for (const [words, title] of searches) {
    await page.getByRole("searchbox").fill("");
    await expect.poll(() => results.count()).toBe(0);
    await page.getByRole("searchbox").fill(words);
    await expect
      .poll(async () => (await results.allTextContents()).slice(0, 5).join("\n"), { message: words })
      .toContain(title);
  }
  expect(wrong).toEqual([]);
});

test("an address that leads nowhere shows a page with the way back", async () => {
  const { page, wrong } = await open("404.html");
  await page.getByRole("heading", { level: 1, name: "Page not found" }).waitFor();
  expect(await violations(page)).toEqual([]);
  await page.getByRole("link", { name: "Front page" }).click();
  await page.getByRole("heading", { level: 1, name: "An exact rate limiter for backends" }).waitFor();
  expect(wrong).toEqual([]);
});

test("a search result leads to its heading", async () => {
  const { page, wrong } = await open("");
  await (await openSearch(page)).fill("refused requests that count");
  await page.locator(".VPLocalSearchBox .results .titles").first().waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/algorithms\.html#refused-requests-that-count/);
  await page.getByRole("heading", { name: "Refused requests that count" }).waitFor();
  expect(wrong).toEqual([]);
});

test("no page is wider than a phone", async () => {
  // The layout needs no scripts, and is there sooner without them.
  const { page } = await open("", { viewport: { width: 360, height: 740 }, javaScriptEnabled: false });
  const tabs = await Promise.all([1, 2, 3].map(() => page.context().newPage()));
  const left = [...pages];
  const wide: string[] = [];
  await Promise.all(
    tabs.map(async (tab) => {
      for (let path = left.pop(); path !== undefined; path = left.pop()) {
        await tab.goto(`${site.url}/${path}`);
        const width = await tab.evaluate(() => document.documentElement.scrollWidth);
        if (width > 360) wide.push(`${path}: ${width} pixels`);
      }
    }),
  );
  expect(left).toEqual([]);
  expect(wide).toEqual([]);
});

test("on a phone a table shows that it scrolls, and code has a button to copy", async () => {
  const phone = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
  const { page } = await open("docs/rules/rules.html", phone); // with less motion, as all pages here
  const table = page.locator(".vp-doc .table").first();
  expect(await table.evaluate((one) => one.scrollWidth > one.clientWidth)).toBe(true);
  const attachment = await table.evaluate((one) => getComputedStyle(one).backgroundAttachment);
  expect(attachment).toBe("local, local, scroll, scroll, scroll");
  const opacity = await page.evaluate(() => getComputedStyle(document.querySelector("button.copy")!).opacity);
  expect(opacity).toBe("1");
});

test("on a phone the pages are in a menu", async () => {
  const { page, wrong } = await open("docs/run/tls.html", { viewport: { width: 360, height: 740 } });
  await page.getByRole("button", { name: "Menu" }).click();
  const sidebar = page.locator(".VPSidebar");
  await sidebar.getByRole("button", { name: "toggle section" }).nth(7).click();
  await sidebar.getByRole("link", { name: "Early warnings" }).click();
  await page.getByRole("heading", { level: 1, name: "Early warnings" }).waitFor();
  expect(wrong).toEqual([]);
});

const kinds = [
  "",
  "docs/rules/rules.html",
  "docs/reference/api.html",
  "clients/python/index.html",
  "docs/internals/benchmarks.html",
  "docs/decisions/",
];

// Each theme and each width once: a page has the same colours at every width.
test.each([
  ["light", 390],
  ["dark", 1440],
] as const)("axe finds nothing: %s, %d pixels wide", async (colorScheme, width) => {
  const { page, wrong } = await open("", { colorScheme, viewport: { width, height: 900 } });
  for (const path of kinds) {
    await page.goto(`${site.url}/${path}`);
    if (path === "") await frame(page).locator(".lane").first().waitFor();
    expect(await violations(page), path).toEqual([]);
  }
  await page.goto(`${site.url}/playground/index.html?frame`);
  await page.locator(".lane").first().waitFor();
  expect(await violations(page), "frame").toEqual([]);
  expect(wrong).toEqual([]);
});

test("axe finds nothing in the results of a search", async () => {
  const { page } = await open("docs/");
  await (await openSearch(page)).fill("redis");
  await page.locator(".VPLocalSearchBox .results .titles").first().waitFor();
  expect(await violations(page)).toEqual([]);
});

test("a theme is remembered, and holds for pictures and playground", async () => {
  const { page, wrong } = await open("", { colorScheme: "light" });
  const background = () => getComputedStyle(document.documentElement).backgroundColor;
  const [light, dark] = ["rgb(246, 247, 248)", "rgb(14, 18, 20)"];
  await frame(page).locator(".lane").first().waitFor();
  expect(await frame(page).locator("html").evaluate(background)).toBe(light);
  await page.locator(".VPNavBar .VPSwitchAppearance").first().click();
  await expect.poll(() => frame(page).locator("html").evaluate(background)).toBe(dark);
  await page.goto(`${site.url}/docs/watch/dashboard.html`);
  await expect
    .poll(() => page.locator("main picture img").evaluate((img: HTMLImageElement) => img.currentSrc))
    .toContain("dashboard-dark");
  expect(await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).toBe(dark);
  await page.goto(`${site.url}/playground/index.html`);
  expect(await page.evaluate(background)).toBe(dark);
  expect(wrong).toEqual([]);
});

test("on paper there is only the text, dark on white", async () => {
  const { page, wrong } = await open("docs/rules/rules.html", { colorScheme: "dark" });
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  for (const part of [".VPNav", ".VPSidebar", ".aside", ".VPDocFooter"]) {
    expect(await page.locator(part).first().isVisible(), part).toBe(false);
  }
  await page.setViewportSize({ width: 794, height: 1123 }); // A4
  const left = await page.locator("main h1").evaluate((heading) => heading.getBoundingClientRect().left);
  expect(left).toBeLessThan(100);
  expect(await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).toBe(
    "rgb(246, 247, 248)",
  );
  expect(wrong).toEqual([]);
});

test("nothing moves if the reader wants less motion", async () => {
  const { page } = await open("docs/rules/rules.html");
  const moving = await page.evaluate(() => {
    const long = (durations: string) => durations.split(",").some((duration) => parseFloat(duration) > 0.01);
    const moves = (style: CSSStyleDeclaration) =>
      long(style.transitionDuration) || long(style.animationDuration);
    return [...document.querySelectorAll("*")].filter((one) => moves(getComputedStyle(one))).length;
  });
  expect(moving).toBe(0);
});
