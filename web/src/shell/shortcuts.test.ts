import { afterEach, beforeEach, expect, test } from "vitest";
import { listen, setShortcuts } from "./shortcuts.ts";

let did: string[];
let now: number;
let stop: () => void;

beforeEach(() => {
  did = [];
  now = 0;
  document.body.innerHTML = '<input id="field"><button id="button"></button>';
  const shortcut = (keys: string) => ({ keys, what: keys, act: () => did.push(keys) });
  stop = listen(
    () => ["p", "g p", "?"].map(shortcut),
    () => now,
  );
});

afterEach(() => {
  stop();
  setShortcuts(true);
});

const press = (key: string, on: Element = document.body, some: KeyboardEventInit = {}) =>
  on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...some }));

test("one key, or two in a row", () => {
  press("p");
  press("g");
  press("p");
  expect(did).toEqual(["p", "g p"]);
});

test("the second key must follow soon", () => {
  press("g");
  now = 2000;
  press("p");
  expect(did).toEqual(["p"]);
});

test("typed text and key combinations are ignored", () => {
  press("p", document.getElementById("field")!);
  press("p", document.body, { ctrlKey: true });
  expect(did).toEqual([]);
  press("p", document.getElementById("button")!);
  expect(did).toEqual(["p"]);
});

test("shortcuts can be turned off, except the one for help", () => {
  setShortcuts(false);
  press("p");
  press("?");
  expect(did).toEqual(["?"]);
});
