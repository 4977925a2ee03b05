import { expect, test } from "vitest";
import { partOf } from "./regions.ts";

test("a region has its part of a limit that others share", () => {
  const bound = { limit: 600, over: 0, bound: "", alone: "" };
  const parts = [
    { region: "eu", limit: 300 },
    { region: "us", limit: 300 },
  ];
  expect(partOf(undefined)).toBeUndefined();
  expect(partOf({ ...bound, region: "us", parts })).toBe(300);
  expect(partOf({ ...bound, region: "us", home: "eu", parts: [] })).toBeUndefined();
  expect(partOf({ ...bound, parts: [] })).toBeUndefined();
});
