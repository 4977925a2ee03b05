import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

/** The path of Chromium: CHROMIUM, or where distributions install it. */
export const executable = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));

/**
 * Starts the browser, without a sandbox if run as root, as in a container. If it
 * crashes at startup, it is started again.
 */
export async function openBrowser(): Promise<Browser> {
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const options = { ...(executable ? { executablePath: executable } : {}), args };
  for (let left = 2; ; left--) {
    try {
      return await chromium.launch(options);
    } catch (error) {
      if (left === 0) throw error;
    }
  }
}

/** A page and everything that went wrong in it. */
export interface Tab {
  page: Page;
  /** Errors of scripts, of the console and of the policy; failed requests; requests to other hosts. */
  wrong: string[];
}

/** Opens a page in a new context, and records what goes wrong. */
export async function openTab(
  browser: Browser,
  home: string,
  options: BrowserContextOptions = {},
): Promise<Tab> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, ...options });
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const wrong: string[] = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") wrong.push(message.text());
  });
  page.on("requestfailed", (request) => {
    const why = request.failure()?.errorText;
    // A request that the page itself aborts, such as a stream on leaving, is no failure.
    if (why !== "net::ERR_ABORTED") wrong.push(`${request.url()}: ${why}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(home) && !request.url().startsWith("data:"))
      wrong.push(`requests ${request.url()}`);
  });
  return { page, wrong };
}

/** Returns the accessibility problems that axe finds in a page. */
export async function violations(page: Page): Promise<string[]> {
  const axe = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: { run: () => Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    const { violations } = await axe.run();
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)}`));
  });
}
