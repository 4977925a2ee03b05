import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * Writes index.html and the arithmetic as a script. A page from a file: address
 * may neither load modules nor fetch, but it may run plain scripts; so they are
 * plain, and the arithmetic is a text in one of them.
 */
function page(): Plugin {
  return {
    name: "headgate-static",
    generateBundle() {
      const file = (fileName: string, source: string) => this.emitFile({ type: "asset", fileName, source });
      file("index.html", readFileSync(here("src/playground/static.html"), "utf8"));
      const wasm = readFileSync(here("wasm/headgate.wasm.gz")).toString("base64");
      file("headgate.js", `globalThis.headgateWasm="${wasm}";\n`);
    },
  };
}

/** Builds the playground alone, for a plain file server or none at all. */
export default defineConfig({
  base: "./",
  plugins: [page()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: here("../dist/playground"),
    emptyOutDir: true,
    target: ["es2023", "chrome123", "firefox128", "safari17.5"],
    cssTarget: ["chrome125", "firefox128", "safari18"],
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    cssCodeSplit: false,
    rollupOptions: {
      input: here("src/playground/static.tsx"),
      output: { format: "iife", entryFileNames: "playground.js", assetFileNames: "playground[extname]" },
    },
  },
});
