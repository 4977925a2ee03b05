import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { figures, table } from "./figures.ts";

const read = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), "utf8");

test("the figures are those of the docs", () => {
  const { memory, time, wrong } = figures(read("internals/benchmarks.md"), read("internals/accuracy.md"));
  expect(memory.map(({ name }) => name)).toEqual([
    "headgate",
    "x/time in a map",
    "throttled",
    "go-limiter",
    "ulule/limiter",
    "floor",
  ]);
  expect(memory.filter(({ ours }) => ours).map(({ name }) => name)).toEqual(["headgate"]);
  expect(time.map(({ name }) => name)).toEqual(["headgate", "the fastest other", "floor"]);
  expect(wrong.map(({ name }) => name)).toEqual([
    "fixed window",
    "sliding window",
    "sliding buckets",
    "sliding log",
    "token bucket",
  ]);
  expect(wrong.filter(({ ours }) => ours)).toEqual([
    { name: "sliding log", value: 0, text: "0.0%", ours: true },
  ]);
  for (const { text } of [...memory, ...time]) expect(text).toMatch(/^\d+ (B|ns)$/);
});

test("a table is the first one behind a line", () => {
  expect(table("x\n\n| a | b |\n|---|---|\n| `c` | 1 |\n\n| d |\n|---|\n", "x")).toEqual([
    ["a", "b"],
    ["c", "1"],
  ]);
});

test("missing figures are errors", () => {
  expect(() => table("x", "y")).toThrow('no line contains "y"');
  expect(() => table("x\n\nno table\n", "x")).toThrow('no table behind "x"');
  expect(() =>
    figures(read("internals/benchmarks.md").replace("| 183 |", "| ? |"), read("internals/accuracy.md")),
  ).toThrow("no figure");
});
