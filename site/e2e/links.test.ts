import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { isPage, place, repository } from "../src/pages.ts";
import { files, folder, pages } from "./server.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const html = new Map(pages.map((page) => [page, readFileSync(join(folder, page), "utf8")]));

const found = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, value]) => value!);

const anchors = new Map([...html].map(([page, text]) => [page, new Set(found(text, /\sid="([^"]+)"/g))]));

const plain = (text: string) => text.replaceAll("&amp;", "&");

/** Says what is wrong with a link of a page, or nothing. */
function wrong(page: string, link: string): string | undefined {
  if (link.startsWith(repository)) {
    const [, file] = /\/(?:blob|tree|edit)\/main\/([^#]+)/.exec(link) ?? [];
    return file === undefined || existsSync(join(root, decodeURIComponent(file)))
      ? undefined
      : "no such file";
  }
  if (/^[a-z]+:/.test(link)) return undefined;
  const [path = "", hash = ""] = link.split(/[?#]/).length > 1 ? link.split("#") : [link];
  const target = path === "" ? page : posix.join(posix.dirname(`/${page}`), path).slice(1);
  const full = posix.isAbsolute(path) ? path.slice(1) : target;
  const file = full === "" || full.endsWith("/") ? `${full}index.html` : full;
  if (!files.includes(file)) return "no such file on the site";
  if (hash && !anchors.get(file)?.has(decodeURIComponent(hash))) return "no such anchor";
  return undefined;
}

test("every link and picture leads to a file and an anchor that exist", () => {
  const problems: string[] = [];
  let internal = 0;
  for (const [page, text] of html) {
    const links = [
      ...found(text, /<a\s[^>]*?href="([^"]*)"/g),
      ...found(text, /<(?:img|source)\s[^>]*?src(?:set)?="([^"]+)"/g),
    ];
    for (const link of new Set(links.map(plain))) {
      const why = wrong(page, link);
      if (why) problems.push(`${page}: ${link}: ${why}`);
      if (!/^[a-z]+:/.test(link)) internal++;
    }
  }
  expect(problems).toEqual([]);
  expect(internal).toBeGreaterThan(1000);
});

test("no page shows what a program forgot", () => {
  const shown = [...html].map(
    ([page, text]) => [page, text.replace(/<script[\s\S]*?<\/script>|<[^>]+>/g, "")] as const,
  );
  expect(shown.filter(([, text]) => /undefined|\[object |NaN/.test(text)).map(([page]) => page)).toEqual([]);
});

test("every page is also served as Markdown, and llms.txt leads to it", () => {
  const list = new Set(found(readFileSync(join(folder, "llms.txt"), "utf8"), /\]\(\/([^)#]+)\)/g));
  expect([...list].filter((file) => !files.includes(file))).toEqual([]);
  const markdown = pages.filter((page) => page !== "index.html").map((page) => page.replace(/html$/, "md"));
  expect(markdown.filter((file) => !files.includes(file))).toEqual([]);
  const book = markdown.filter((file) => /^docs\/(?!decisions\/)[a-z]+\//.test(file));
  expect(book.filter((file) => !list.has(file))).toEqual([]);
});

test("every block of code has a button that copies it", () => {
  const blocks = html.get("docs/start/cookbook.html")!;
  expect(found(blocks, /(<button title="Copy Code" class="copy">)/g).length).toBe(
    found(blocks, /(<pre\s)/g).length,
  );
});

test("every Markdown file of the docs is a page", () => {
  const docs = readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" }).map(
    (name) => `docs/${name}`,
  );
  const missing = docs.filter((file) => isPage(file) && !html.has(place(file).replace(/md$/, "html")));
  expect(missing).toEqual([]);
});

test("every page of the docs is in the sidebar of every other", () => {
  const text = html.get("docs/run/tls.html")!;
  const aside = text.slice(text.indexOf("VPSidebarNav"), text.indexOf("VPContent has-sidebar"));
  const listed = new Set(found(aside, /href="\/([^"]+)"/g));
  const missing = pages.filter(
    (page) =>
      /^(docs\/((?!decisions\/)[a-z]+\/)?|clients\/([^/]+\/)?)[^/]+$/.test(page) &&
      !listed.has(page) &&
      page !== "docs/index.html",
  );
  expect(missing).toEqual([]);
});
