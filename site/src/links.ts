import { existsSync, statSync } from "node:fs";
import { join, posix } from "node:path";
import { isPage, place, repository, served } from "./pages.ts";

/**
 * Returns where a link leads on the site. The pages are written for GitHub: their
 * links are relative to their files. A link to a page leads to the page, one to any
 * other file to the repository. Throws if there is no such file.
 *
 * @param href the link as it is written
 * @param from the file with the link, relative to the repository
 * @param root the folder of the repository
 */
export function resolve(href: string, from: string, root: string): string {
  if (href.startsWith("#") || /^[a-z][a-z0-9+.-]*:/i.test(href)) return href;
  const [path = "", hash] = href.split("#", 2);
  const file = posix.join(posix.dirname(from), decodeURIComponent(path)).replace(/\/$/, "");
  const end = hash === undefined ? "" : `#${hash}`;
  if (isPage(file)) return `/${place(file)}${end}`;
  if (served.includes(file)) return `/${file}`;
  const full = join(root, file);
  if (file.startsWith("..") || !existsSync(full)) throw new Error(`${from}: link to ${href}: no such file`);
  return `${repository}/${statSync(full).isDirectory() ? "tree" : "blob"}/main/${file}${end}`;
}

/** Makes addresses of pictures in HTML relative with a dot, so that the bundler sees them. */
export function pictures(html: string): string {
  return html.replace(/(\s(?:src|srcset)=")(?![a-z]+:|[./])/g, "$1./");
}
