import { expect, test } from "vitest";
import { bytes, count, duration, goSpan, keyText, perSecond, relative, share } from "./format.ts";

test.each([
  [0, "0 ms"],
  [11_250, "11.2 s"],
  [59_999, "59.9 s"],
  [60_000, "1 min"],
  [125_000, "2 min 5 s"],
  [3_600_000 + 20 * 60_000, "1 h 20 min"],
  [49 * 3_600_000, "2 d 1 h"],
])("%d ms is %s", (ms, text) => expect(duration(ms)).toBe(text));

test.each([
  [0, 0, "–"],
  [0, 10, "0%"],
  [1, 10_000, "<0.1%"],
  [1, 3, "33.3%"],
  [9999, 10_000, ">99.9%"],
  [5, 5, "100%"],
])("%d of %d is %s", (part, all, text) => expect(share(part, all)).toBe(text));

test("numbers are exact", () => {
  expect(count(1_234_567)).toBe("1,234,567");
  expect([perSecond(0), perSecond(0.07), perSecond(41.26), perSecond(1234.5)]).toEqual([
    "0",
    "0.07",
    "41.3",
    "1,235",
  ]);
  expect([bytes(384), bytes(1536), bytes(20 * 1024 ** 2)]).toEqual(["384 B", "1.5 KiB", "20 MiB"]);
});

test("relative times", () => {
  expect([relative(1000, 1500), relative(0, 65_000), relative(3_600_000, 0)]).toEqual([
    "now",
    "1 min 5 s ago",
    "in 1 h",
  ]);
});

test.each([
  ["90m", "90m"],
  ["1h 30m", "1h30m"],
  ["10 min", "10m"],
  ["2 days", "48h"],
  ["1.5d", "36h"],
  ["0s", undefined],
  ["soon", undefined],
  ["-5m", undefined],
  ["5", undefined],
])("%s is %s in Go", (typed, span) => expect(goSpan(typed)).toBe(span));

test("keys as text", () => {
  expect([keyText(["a", null]), keyText([])]).toEqual(["a, (none)", "all requests"]);
});
