import { posix } from "node:path";
import { isPage, place } from "./pages.ts";

/** A part of the sidebar: a subject and its pages. */
export interface Group {
  text: string;
  items: { text: string; link: string }[];
}

/**
 * Makes the sidebar of docs/README.md, which links to every page by subject: a
 * section is a group, and so is a table, called by its first header. A page is listed
 * once, where it comes first.
 *
 * @param map the text of docs/README.md
 * @param title returns the title of a page, by its file
 */
export function sidebar(map: string, title: (file: string) => string): Group[] {
  const groups: Group[] = [];
  const listed = new Set<string>();
  const [, ...sections] = map.split(/^## /m);
  for (const line of sections.flatMap((section) => `## ${section}`.split("\n"))) {
    const heading = /^## (.*)/.exec(line)?.[1] ?? /^\| … (.*?) *\|/.exec(line)?.[1];
    if (heading !== undefined) {
      groups.push({ text: upper(heading), items: [] });
      continue;
    }
    for (const [, href] of line.matchAll(/\]\(([^)#\s]+)[^)]*\)/g)) {
      const file = posix.join("docs", href!);
      if (href!.includes(":") || !isPage(file) || listed.has(file)) continue;
      listed.add(file);
      groups.at(-1)!.items.push({ text: title(file), link: `/${place(file)}` });
    }
  }
  return groups.filter(({ items }) => items.length > 0);
}

/** Makes the sidebar of the decisions, from the table in docs/decisions/README.md. */
export function decisions(map: string): Group {
  const rows = map.matchAll(/^\| \[(\d+)\]\(([^)]+)\) \| (.*) \|$/gm);
  const items = [...rows].map(([, number, file, text]) => ({
    text: `${Number(number)} ${text!}`,
    link: `/docs/decisions/${file}`,
  }));
  return { text: "Decisions", items: [{ text: "All decisions", link: "/docs/decisions/" }, ...items] };
}

/** Returns the first heading of a page. */
export function titleOf(text: string): string {
  const title = /^# (.+)$/m.exec(text)?.[1];
  if (title === undefined) throw new Error("a page without a heading");
  return title.replace(/^0*(\d+) /, "$1 ").replaceAll("`", "");
}

const upper = (text: string) => text[0]!.toUpperCase() + text.slice(1);
