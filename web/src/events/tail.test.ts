import { expect, test } from "vitest";
import type { Decision } from "../data/types.ts";
import { fromHash } from "./Events.tsx";
import { address, everything, most, Tail } from "./tail.ts";

test("a filter is in the address of the events, and in links", () => {
  expect(address(everything)).toBe("./v1/events");
  expect(address({ ...everything, outcome: "refused", key: "a b", sample: "0.1" })).toBe(
    "./v1/events?outcome=refused&key=a+b&sample=0.1",
  );
  expect(fromHash("#rule=login&outcome=refused")).toEqual({
    ...everything,
    rule: "login",
    outcome: "refused",
  });
});

test("keeps the newest, and counts them all", () => {
  const tail = new Tail(everything);
  for (let i = 1; i <= most + 50; i++) tail.hear({ rule: `r${i}` } as Decision);
  tail.show();
  expect(tail.seen.value).toBe(most + 50);
  expect(tail.shown.value).toHaveLength(most);
  expect(tail.shown.value[0]!.rule).toBe(`r${most + 50}`);
  tail.hear({ rule: "last" } as Decision);
  tail.show();
  expect(tail.shown.value.slice(0, 2).map((d) => d.rule)).toEqual(["last", `r${most + 50}`]);
});
