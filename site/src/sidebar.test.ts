import { expect, test } from "vitest";
import { decisions, sidebar, titleOf } from "./sidebar.ts";

const files: Record<string, string> = {
  "docs/README.md": `# Documentation

| [Start](start/README.md) | [Watch](watch/README.md) |

See [tls](run/tls.md), [start](start/README.md), [decisions](decisions/README.md), [clients](../clients/README.md).
`,
  "docs/start/README.md": `# Start

| nginx | [nginx](nginx.md), [again](nginx.md#steps), [keys](../watch/keys.md), [scope](../scope.md) |
| more | [clients](../../clients/README.md), [an example](../../examples/figma), [elsewhere](https://example.com/a.md) |
`,
  "docs/watch/README.md":
    "# Watch\n\n[keys](keys.md), [scope](../scope.md), [decisions](../decisions/README.md)\n",
};

test("the indexes of docs/README.md are parts, and a page is listed once, in its own", () => {
  const read = (file: string) => files[file] ?? `# title of ${file}\n`;
  expect(sidebar(read)).toEqual([
    {
      text: "Start",
      link: "/docs/start/index.md",
      collapsed: true,
      items: [
        { text: "title of docs/start/nginx.md", link: "/docs/start/nginx.md" },
        { text: "title of docs/scope.md", link: "/docs/scope.md" },
        { text: "title of clients/README.md", link: "/clients/index.md" },
      ],
    },
    {
      text: "Watch",
      link: "/docs/watch/index.md",
      collapsed: true,
      items: [
        { text: "title of docs/watch/keys.md", link: "/docs/watch/keys.md" },
        { text: "title of docs/decisions/README.md", link: "/docs/decisions/index.md" },
      ],
    },
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
