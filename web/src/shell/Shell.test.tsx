import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Shell } from "./Shell.tsx";

beforeEach(() => {
  document.body.innerHTML = '<div id="app"></div>';
});

afterEach(() => {
  localStorage.clear();
  delete document.documentElement.dataset.theme;
});

const app = () => document.getElementById("app")!;

test("the navigation marks the current page", () => {
  render(<Shell page="Rules">text</Shell>, app());
  const links = [...app().querySelectorAll("nav a")];
  expect(links.map((a) => a.textContent)).toEqual([
    "Dashboard",
    "Rules",
    "Keys",
    "Queue",
    "Events",
    "Playground",
  ]);
  expect(links.map((a) => a.getAttribute("aria-current"))).toEqual([null, "page", null, null, null, null]);
});

test("a standalone page has no links", () => {
  render(
    <Shell page="Playground" alone>
      text
    </Shell>,
    app(),
  );
  expect(app().querySelectorAll("header a")).toHaveLength(0);
});

test("a chosen theme is applied and stored, and the system theme is not stored", () => {
  render(<Shell page="Rules">text</Shell>, app());
  const choose = (value: string) =>
    act(() => app().querySelector<HTMLInputElement>(`input[value=${value}]`)!.click());
  choose("dark");
  expect(document.documentElement.dataset.theme).toBe("dark");
  expect(localStorage.getItem("headgate-theme")).toBe("dark");
  choose("system");
  expect(document.documentElement.dataset.theme).toBeUndefined();
  expect(localStorage.getItem("headgate-theme")).toBeNull();
});
