/** The module's repository, where links to files that are not pages lead. */
export const repository = "https://github.com/headgate/headgate";

/**
 * Files of the repository that are not pages, as patterns for VitePress. All other
 * Markdown files are pages.
 */
export const excluded = [
  "!(docs|clients|site)/**/*",
  "!(CHANGELOG).md",
  "site/!(index).md",
  "site/*/**/*",
  "clients/conformance/**/*",
  "clients/*/!(README).md",
  "clients/*/*/**/*",
  "docs/decisions/0000-template.md",
];

const pages = [
  /^site\/index\.md$/,
  /^CHANGELOG\.md$/,
  /^clients\/((?!conformance\/)[^/]+\/)?README\.md$/,
  /^docs\/(?!decisions\/0000-).+\.md$/,
];

/** Reports whether a file of the repository is a page. It agrees with {@link excluded}. */
export function isPage(file: string): boolean {
  return pages.some((pattern) => pattern.test(file));
}

/** Files that are served unchanged, because tools read them. */
export const served = ["api/openapi.yaml", "docs/rules.schema.json", "docs/rule-tests.schema.json"];

/** Returns where a page is on the site: docs/README.md is docs/index.md, the others keep their paths. */
export function place(file: string): string {
  if (file === "site/index.md") return "index.md";
  if (file === "CHANGELOG.md") return "changelog.md";
  return file.replace(/(^|\/)README\.md$/, "$1index.md");
}

/** Returns the anchor of a heading, made the same way as on GitHub. */
export function anchor(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}
