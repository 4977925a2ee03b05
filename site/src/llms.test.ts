import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { llms, sentenceOf, served } from "./llms.ts";

const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

test("llms.txt has a title, a summary, and the Markdown of each page by part, with a sentence", () => {
  const text = llms((file) => readFileSync(join(root, file), "utf8"), "/headgate/");
  expect(text).toMatch(/^# Headgate\n\n> An exact rate limiter for backends/);
  expect(text).toContain(
    "\n## Start\n\n- [Start: which page?](/headgate/docs/start/index.md): From nothing to a request that is refused, in ten minutes.\n",
  );
  expect(text).toContain(
    "- [Which algorithm?](/headgate/docs/start/which-algorithm.md): For logins write algorithm: sliding_log.\n",
  );
  const entries = text.split("\n").filter((line) => line.startsWith("- "));
  expect(entries.length).toBeGreaterThan(60);
  expect(entries.filter((line) => !/^- \[[^\]]+\]\([^)]+\.md\): [^`*[\]|]+\.$/.test(line))).toEqual([]);
});

test("a page is described by its first sentence, without markup", () => {
  const rows: [string, string][] = [
    ["# A\n\n`a.b` is *one*\nof [these](b.md#c). More.\n\n# B\n", "a.b is one of these."],
    ["# A\n\nIt is on 127.0.0.1:80 ([example](../x)):\n\n```\ncode\n```\n", "It is on 127.0.0.1:80."],
    ["# A\n\nOne: two, three.\n", "One: two, three."],
  ];
  for (const [page, sentence] of rows) expect(sentenceOf(page)).toBe(sentence);
  expect(() => sentenceOf("# A\n\n| a |\n|---|\n")).toThrow("does not begin with a sentence: A");
});

test("links in Markdown lead where they lead on the site, and code stays", () => {
  const page =
    "[rules](../rules/README.md#a), `[x](y.md)`, [test](../../internal/repotest), [self](#b)\n\n```\n[z](z.md)\n```\n";
  expect(served(page, "docs/start/nginx.md", root, "/headgate/")).toBe(
    "[rules](/headgate/docs/rules/index.md#a), `[x](y.md)`, [test](https://github.com/headgate/headgate/tree/main/internal/repotest), [self](#b)\n\n```\n[z](z.md)\n```\n",
  );
});
