import { relative, sep } from "node:path";
import type { MarkdownOptions } from "vitepress";
import { pictures, resolve } from "./links.ts";
import { anchor } from "./pages.ts";

type MarkdownIt = Parameters<NonNullable<MarkdownOptions["config"]>>[0];
type Token = ReturnType<MarkdownIt["parse"]>[number];

/** Lets Markdown mean what it means on GitHub, and links lead where they lead there. */
export function markdown(root: string): MarkdownOptions {
  return {
    theme: code,
    languageAlias: { caddy: "nginx" },
    anchor: { slugify: anchor },
    attrs: { disable: true },
    config(md) {
      // :name: is what it says. Without emojis to look for, the rule would find one in every empty text.
      md.core.ruler.disable("emoji");
      md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
      md.core.ruler.push("headgate", ({ tokens, env }) => {
        // VitePress also parses a page only for its title, without a path.
        if (!env.path) return;
        const file = relative(root, env.realPath ?? env.path)
          .split(sep)
          .join("/");
        links(tokens, file, root);
        headers(tokens);
      });
      // A table that is too wide scrolls, also by keyboard.
      md.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>\n';
      md.renderer.rules.table_close = () => "</table></div>\n";
      // Code by indentation is a block like any other.
      md.renderer.rules.code_block = (...all) => md.renderer.rules.fence!(...all);
      // {{.RetryAfter}} is a Go template, not one of Vue's.
      md.renderer.rules.code_inline = (tokens, i) =>
        `<code v-pre>${md.utils.escapeHtml(tokens[i]!.content)}</code>`;
    },
  };
}

/** Corrects links and the addresses of pictures. */
function links(tokens: Token[], file: string, root: string): void {
  for (const token of tokens) {
    if (token.type === "html_block" || token.type === "html_inline") token.content = pictures(token.content);
    if (token.type === "link_open") token.attrSet("href", resolve(token.attrGet("href") ?? "", file, root));
    if (token.children) links(token.children, file, root);
  }
}

/** A header cell without text is no header: screen readers would announce it. */
function headers(tokens: Token[]): void {
  tokens.forEach((token, i) => {
    if (token.type !== "th_open" || tokens[i + 1]?.content !== "") return;
    token.tag = "td";
    tokens[i + 2]!.tag = "td";
  });
}

const scopes: Record<string, string[]> = {
  comment: ["comment", "punctuation.definition.comment"],
  string: ["string", "constant.other.symbol", "markup.inline.raw"],
  value: ["constant", "support.constant", "variable.other.enummember"],
  key: [
    "entity.name.tag",
    "support.type.property-name",
    "meta.object-literal.key",
    "entity.other.attribute-name",
  ],
  keyword: ["keyword", "storage", "entity.name.section", "markup.heading"],
  call: ["entity.name.function", "support.function", "entity.name.command"],
};

/** The colours of code, from the design tokens: style.css defines them for both themes. */
const code = {
  name: "headgate",
  type: "light" as const,
  fg: "var(--text)",
  bg: "var(--surface)",
  settings: Object.entries(scopes).map(([name, scope]) => ({
    scope,
    settings: { foreground: `var(--code-${name})` },
  })),
};
