import { posix } from "node:path";
import { isPage, place } from "./pages.ts";

/** A part of the sidebar: a subject and its pages. Only the part with the page one reads is open. */
export interface Group {
  text: string;
  link?: string;
  collapsed?: true;
  items: { text: string; link: string }[];
}

/**
 * Makes the sidebar of the parts of the book: docs/README.md links to the index of each
 * part, and the index to its pages. A page is listed once, in its own part; a page of
 * another folder, such as a client's, where it comes first.
 *
 * @param read returns the text of a file
 */
export function sidebar(read: (file: string) => string): Group[] {
  const listed = new Set<string>();
  return links("docs/README.md", read)
    .filter((file) => /^docs\/[a-z]+\/README\.md$/.test(file) && file !== "docs/decisions/README.md")
    .filter(once(listed))
    .map((index) => ({
      text: titleOf(read(index)),
      link: `/${place(index)}`,
      collapsed: true,
      items: links(index, read)
        .filter((file) => isPage(file) && belongs(file, index))
        .filter(once(listed))
        .map((file) => ({ text: titleOf(read(file)), link: `/${place(file)}` })),
    }));
}

/** Returns the files that a page links to, in order. */
function links(page: string, read: (file: string) => string): string[] {
  const found = read(page).matchAll(/\]\(([^)#\s]+)[^)]*\)/g);
  return [...found]
    .map(([, href]) => href!)
    .filter((href) => !href.includes(":"))
    .map((href) => posix.join(posix.dirname(page), href));
}

/** Reports whether a page is in the part of an index, or in none. */
const belongs = (file: string, index: string) =>
  posix.dirname(file) === posix.dirname(index) ||
  !/^docs\/[a-z]+\//.test(file) ||
  file === "docs/decisions/README.md";

const once = (seen: Set<string>) => (file: string) => !seen.has(file) && seen.add(file) !== undefined;

/** Makes the sidebar of the decisions, from the table in docs/decisions/README.md. */
export function decisions(map: string): Group {
  const rows = map.matchAll(/^\| \[(\d+)\]\(([^)]+)\) \| (.*) \|$/gm);
  const items = [...rows].map(([, number, file, text]) => ({
    text: `${Number(number)} ${text!}`,
    link: `/docs/decisions/${file}`,
  }));
  return {
    text: "Decisions",
    items: [{ text: "All decisions", link: "/docs/decisions/" }, ...items],
  };
}

/** Returns the first heading of a page. */
export function titleOf(text: string): string {
  const title = /^# (.+)$/m.exec(text)?.[1];
  if (title === undefined) throw new Error("a page without a heading");
  return title.replace(/^0*(\d+) /, "$1 ").replaceAll("`", "");
}
