import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";
import { llms, served as markdownOf } from "../src/llms.ts";
import { markdown } from "../src/markdown.ts";
import { excluded, place, repository, served } from "../src/pages.ts";
import { decisions, sidebar } from "../src/sidebar.ts";

const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
const read = (file: string) => readFileSync(join(root, file), "utf8");
const playground = join(root, "bin/playground");

/** Where the site is served: SITE_BASE, such as /headgate/ on GitHub Pages. */
const base = process.env.SITE_BASE ?? "/";

/** The pages are the repository's own Markdown files: nothing is copied or written for the site. */
export default defineConfig({
  base,
  srcDir: root,
  srcExclude: excluded,
  rewrites: place,
  outDir: join(root, "bin/site"),
  cacheDir: join(root, "bin/.site-cache"),
  lang: "en",
  title: "Headgate",
  description: "An exact rate limiter for backends: one Go library, one static binary.",
  head: [
    ["link", { rel: "icon", href: `${base}favicon.svg`, type: "image/svg+xml" }],
    ["meta", { name: "color-scheme", content: "light dark" }],
  ],
  markdown: markdown(root),
  themeConfig: {
    logo: "/favicon.svg",
    nav: [
      { text: "Docs", link: "/docs/", activeMatch: "^/(docs/(?!internals/)|clients/)" },
      { text: "Playground", link: "/playground/index.html", target: "_self" },
      { text: "Benchmarks", link: "/docs/internals/benchmarks" },
      { text: "Changelog", link: "/changelog" },
    ],
    sidebar: {
      "/docs/decisions/": [
        { text: "Documentation", items: [{ text: "All pages", link: "/docs/" }] },
        decisions(read("docs/decisions/README.md")),
      ],
      "/": sidebar(read),
    },
    outline: { level: [2, 3], label: "On this page" },
    socialLinks: [{ icon: "github", link: repository, ariaLabel: "Source code on GitHub" }],
    editLink: { pattern: `${repository}/edit/main/:path`, text: "Edit this page" },
    externalLinkIcon: false,
    search: {
      provider: "local",
      options: {
        detailedView: true,
        miniSearch: {
          // A name such as Retry-After or charge_on is a word, and so is each of its parts.
          options: {
            tokenize: (text) =>
              (text.match(/[\p{L}\p{N}]+(?:[-_.][\p{L}\p{N}]+)*/gu) ?? []).flatMap((word) => {
                const parts = word.split(/[-_.]/);
                return parts.length > 1 ? [word, ...parts] : parts;
              }),
          },
          searchOptions: {
            fuzzy: (term: string) => (term.length > 4 ? 0.15 : false),
            prefix: true,
            boost: { title: 4, titles: 2, text: 1 },
            boostTerm: (term: string) => (/[-_.]/.test(term) ? 3 : 1),
            // Pages that say what something is come before those that mention it; decisions, the
            // changelog and the list of all fields are last.
            boostDocument: (id: string) => {
              if (/\/decisions\/|\/changelog|\/api\.html|\/dependencies/.test(id)) return 0.3;
              if (/\/(regions|playground|benchmarks|accuracy)/.test(id)) return 0.7;
              return /\/(rules|algorithms|which-algorithm|troubleshooting|cookbook|install|kubernetes|headers|client-ip|configuration|http-api|redis|failure)\.html/.test(
                id,
              )
                ? 1.5
                : 1;
            },
          },
        },
      },
    },
  },
  vite: {
    publicDir: join(root, "web/public"),
    plugins: [
      {
        // The pages are outside this folder, where Vue is not to be found.
        name: "headgate-vue",
        enforce: "pre",
        resolveId: (id, _importer, { ssr }) =>
          ssr && (id === "vue" || id === "vue/server-renderer") ? { id, external: true } : undefined,
      },
    ],
    build: { chunkSizeWarningLimit: 2000 },
  },
  buildEnd({ outDir, pages }) {
    for (const file of served) {
      mkdirSync(dirname(join(outDir, file)), { recursive: true });
      copyFileSync(join(root, file), join(outDir, file));
    }
    // For readers that are programs: each page as Markdown next to its HTML, and a list of them.
    for (const file of pages.filter((page) => page !== "site/index.md")) {
      writeFileSync(join(outDir, place(file)), markdownOf(read(file), file, root, base));
    }
    writeFileSync(join(outDir, "llms.txt"), llms(read, base));
    if (!existsSync(playground)) throw new Error("no bin/playground: run make site, which builds it first");
    cpSync(playground, join(outDir, "playground"), { recursive: true });
    const page = join(outDir, "playground/index.html");
    // With a way back to the site.
    const app = '<div id="app"';
    writeFileSync(page, readFileSync(page, "utf8").replace(app, `${app} data-home="../"`));
  },
});
