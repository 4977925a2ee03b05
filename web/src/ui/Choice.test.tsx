import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { Choice } from "./Choice.tsx";

const options = (n: number) =>
  Array.from({ length: n }, (_, i): [string, string] => [`v${i}`, `rule ${i}, 5/hour`]);

/** Shows a choice of n values, the second of which is chosen. */
function show(n: number) {
  document.body.innerHTML = '<div id="app"></div>';
  const chosen: string[] = [];
  act(() =>
    render(
      <Choice label="Rule" value="v1" options={options(n)} onChange={(v) => chosen.push(v)} />,
      document.getElementById("app")!,
    ),
  );
  return chosen;
}

test("a short list is a select", () => {
  show(20);
  expect(document.querySelector("select")!.value).toBe("v1");
  expect(document.querySelector("input")).toBeNull();
});

test("a long list is searched by typing", () => {
  const chosen = show(508);
  const input = document.querySelector("input")!;
  const type = (text: string) =>
    act(() => {
      input.value = text;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    });
  expect(input.value).toBe("rule 1, 5/hour");
  expect(document.getElementById(input.getAttribute("list")!)!.children.length).toBe(508);
  type("rule 40");
  expect(chosen).toEqual([]);
  expect(input.value).toBe("rule 40");
  type("rule 407, 5/hour");
  expect(chosen).toEqual(["v407"]);
  // What is no option is forgotten when the field is left.
  type("nothing");
  act(() => {
    input.dispatchEvent(new Event("blur"));
  });
  expect(input.value).toBe("rule 1, 5/hour");
  expect(chosen).toEqual(["v407"]);
});
