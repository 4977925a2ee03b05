import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Every .html file of this folder is a page: rules.html is served as /rules. */
const pages = readdirSync(here("."))
  .filter((name) => name.endsWith(".html"))
  .map((name) => here(name));

/** Builds the pages of the admin door into the folder that the binary embeds. */
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: here("../internal/door/admin/dashboard/dist"),
    emptyOutDir: true,
    target: ["es2023", "chrome123", "firefox128", "safari17.5"],
    // The policy forbids data: addresses, so nothing may be inlined.
    assetsInlineLimit: 0,
    // The oldest supported browsers.
    cssTarget: ["chrome125", "firefox128", "safari18"],
    modulePreload: { polyfill: false },
    sourcemap: false,
    reportCompressedSize: false,
    rollupOptions: {
      input: pages,
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
  // npm run dev: pages from source, data from a running admin door.
  server: { proxy: { "/v1": "http://127.0.0.1:6070" } },
  test: { environment: "happy-dom", testTimeout: 30_000, include: ["src/**/*.test.{ts,tsx}"] },
});
