import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { llms, served } from "./llms.ts";

const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

test("llms.txt has a title, a summary, and the Markdown of each page by part", () => {
  const text = llms((file) => readFileSync(join(root, file), "utf8"), "/headgate/");
  expect(text).toMatch(/^# Headgate\n\n> An exact rate limiter for backends/);
  expect(text).toMatch(/^## Start\n\n- \[Start: which page\?\]\(\/headgate\/docs\/start\/index\.md\)$/m);
  expect(text).toContain("- [Which algorithm?](/headgate/docs/start/which-algorithm.md)\n");
});

test("links in Markdown lead where they lead on the site, and code stays", () => {
  const page =
    "[rules](../rules/README.md#a), `[x](y.md)`, [test](../../internal/repotest), [self](#b)\n\n```\n[z](z.md)\n```\n";
  expect(served(page, "docs/start/nginx.md", root, "/headgate/")).toBe(
    "[rules](/headgate/docs/rules/index.md#a), `[x](y.md)`, [test](https://github.com/headgate/headgate/tree/main/internal/repotest), [self](#b)\n\n```\n[z](z.md)\n```\n",
  );
});
