import { expect, test } from "vitest";
import {
  bytes,
  count,
  duration,
  escaped,
  goSpan,
  keyText,
  perSecond,
  relative,
  share,
  unescaped,
} from "./format.ts";

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

// The same as TestEscape of internal/base/clip, which the commands use.
test.each([
  ["", ""],
  ["198.51.100.7", "198.51.100.7"],
  ["\u202e1.001.15.891", "\\u202e1.001.15.891"],
  ["a\u200bb\tc\n\x1b[31m\x7f", "a\\u200bb\\x09c\\x0a\\x1b[31m\\x7f"],
  ["\u{e0001}\ufe0f\u2028", "\\U000e0001\\ufe0f\\u2028"],
  ["é 中 \u05d0 \u0627", "é 中 \u05d0 \u0627"],
  ["DOMAIN\\user", "DOMAIN\\user"],
  ["\\\\server\\x41", "\\\\server\\x41"],
  ["\\u202e", "\\x5cu202e"],
  ["\\x5cu202e", "\\x5cx5cu202e"],
  ["\\\u202e", "\\\\u202e"],
])("%j is shown as %s, which can be typed back", (text, shown) => {
  expect(escaped(text)).toBe(shown);
  expect(unescaped(shown)).toBe(text);
});

test("times that are far away are dates", () => {
  const now = Date.UTC(2026, 10, 26);
  expect(relative(now + 8 * 365 * 86_400_000, now)).toBe("24 Nov 2034");
  expect(relative(now + 3 * 86_400_000, now)).toBe("in 3 d");
});
