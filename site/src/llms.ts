import { resolve } from "./links.ts";
import { sidebar, titleOf } from "./sidebar.ts";

/**
 * Makes llms.txt (https://llmstxt.org), for readers that are programs: what Headgate is, and
 * the Markdown of each page with its first sentence, by the parts of the book.
 *
 * @param read returns the text of a file
 * @param base where the site is served, with a slash at the end
 */
export function llms(read: (file: string) => string, base: string): string {
  const readme = read("README.md");
  const summary = /^\*\*(.+?)\*\* (.+)$/m.exec(readme);
  if (summary === null) throw new Error("README.md does not begin with what Headgate is");
  const parts = sidebar(read).map(({ text, link, items }) => {
    const pages = [{ text: `${text}: which page?`, link: link! }, ...items];
    const lines = pages.map((page) => {
      const place = page.link.slice(1);
      const sentence = sentenceOf(read(place.replace(/\bindex\.md$/, "README.md")));
      return `- [${page.text}](${base}${place}): ${sentence}\n`;
    });
    return `## ${text}\n\n${lines.join("")}`;
  });
  return [`# ${titleOf(readme)}\n`, `> ${summary[1]} ${summary[2]}\n`, ...parts].join("\n");
}

/** Returns the first sentence below the heading of a page, without markup. */
export function sentenceOf(text: string): string {
  const paragraph = /^# .+\n\n(?!```|[|#!<])(.+(?:\n.+)*)/m.exec(text)?.[1] ?? "";
  const plain = paragraph
    .replaceAll("\n", " ")
    .replace(/ \(\[[^\]]+\]\([^)]+\)\)/g, "") // a link in brackets
    .replace(/\[([^\]]+)\]\([^)]+\)/g, "$1")
    .replace(/[`*]/g, "");
  const sentence = /^.+?(?=[.:]$|\. )/.exec(plain)?.[0];
  if (sentence === undefined) throw new Error(`a page that does not begin with a sentence: ${titleOf(text)}`);
  return `${sentence}.`;
}

/**
 * Returns the Markdown of a page as it is served next to its HTML: links lead to where they
 * lead on the site.
 */
export function served(text: string, file: string, root: string, base: string): string {
  // Code comes first, because nothing in it is a link.
  return text.replace(/^ *```[\s\S]*?^ *```|`[^`\n]*`|\]\(([^)\s]+)\)/gm, (all, href?: string) => {
    if (href === undefined) return all;
    const target = resolve(href, file, root);
    return `](${target.startsWith("/") ? base + target.slice(1) : target})`;
  });
}
