import { expect, test } from "vitest";
import { wanted } from "./wanted.ts";

test("a filter takes words in any order, and phrases as they are", () => {
  for (const [typed, text, found] of [
    ["", "anything", true],
    ["  ", "anything", true],
    ["Ticket 77", "77 tickets", true],
    ['"ticket 77"', "77 tickets", false],
    ['"ticket 77"', "see Ticket 770", true],
    ['login "ticket 77"', "api login ticket 77", true],
    ['login "ticket 77"', "api search ticket 77", false],
    ['"ticket 7', "ticket 77", true],
    ['""', "anything", true],
  ] as const) {
    expect(wanted(typed)(text), `${typed} in ${text}`).toBe(found);
  }
});
