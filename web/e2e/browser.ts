import { existsSync } from "node:fs";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

/** Where Chromium is: CHROMIUM, or where distributions put it. */
export const executable = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => path !== undefined && existsSync(path));

/** Starts the browser. As root, as in a container, it has no sandbox. */
export async function openBrowser(): Promise<Browser> {
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ ...(executable ? { executablePath: executable } : {}), args });
}

/** A page and all that went wrong in it. */
export interface Tab {
  page: Page;
  /** Errors of scripts, of the console and of the policy; failed requests; requests to other hosts. */
  wrong: string[];
}

/** Opens a page of its own that keeps what goes wrong. */
export async function openTab(
  browser: Browser,
  home: string,
  options: BrowserContextOptions = {},
): Promise<Tab> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, ...options });
  const page = await context.newPage();
  const wrong: string[] = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") wrong.push(message.text());
  });
  page.on("requestfailed", (request) => wrong.push(`${request.url()}: ${request.failure()?.errorText}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(home) && !request.url().startsWith("data:"))
      wrong.push(`asks ${request.url()}`);
  });
  return { page, wrong };
}
