import { expect, test } from "vitest";
import { decisions, sidebar, titleOf } from "./sidebar.ts";

const map = `# Documentation

Before the first section: [rules](rules.md).

## Tutorials

- [Nginx](tutorials/nginx.md)

## I want to …

| … write rules | |
|---|---|
| limit | [rules](rules.md), [keys](keys.md#shapes) |
| again | [rules](rules.md) |

## Reference

- [Clients](../clients/README.md), [contributing](../CONTRIBUTING.md), [elsewhere](https://example.com/a.md)
`;

test("sections and tables of docs/README.md are groups, and a page is listed once", () => {
  expect(sidebar(map, (file) => `title of ${file}`)).toEqual([
    {
      text: "Tutorials",
      items: [{ text: "title of docs/tutorials/nginx.md", link: "/docs/tutorials/nginx.md" }],
    },
    {
      text: "Write rules",
      items: [
        { text: "title of docs/rules.md", link: "/docs/rules.md" },
        { text: "title of docs/keys.md", link: "/docs/keys.md" },
      ],
    },
    { text: "Reference", items: [{ text: "title of clients/README.md", link: "/clients/index.md" }] },
  ]);
});

test("decisions are listed with number and title", () => {
  expect(
    decisions("| | |\n|---|---|\n| [0001](0001-a.md) | A folder |\n| [0110](0110-b.md) | Regions |\n").items,
  ).toEqual([
    { text: "All decisions", link: "/docs/decisions/" },
    { text: "1 A folder", link: "/docs/decisions/0001-a.md" },
    { text: "110 Regions", link: "/docs/decisions/0110-b.md" },
  ]);
});

test("a page is called by its first heading", () => {
  expect(titleOf("# The `admin` door\n\n# Another\n")).toBe("The admin door");
  expect(() => titleOf("no heading")).toThrow("a page without a heading");
});
