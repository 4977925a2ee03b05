import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * Writes index.html, and the WebAssembly as a script. A page opened from a file:
 * address can neither load modules nor fetch, but it can run plain scripts. So
 * scripts are plain, and one of them contains the WebAssembly as text.
 */
function page(): Plugin {
  return {
    name: "headgate-static",
    generateBundle() {
      const file = (fileName: string, source: string) => this.emitFile({ type: "asset", fileName, source });
      file("index.html", readFileSync(here("src/playground/static.html"), "utf8"));
      const wasm = readFileSync(
        here("../internal/door/admin/dashboard/playground/headgate.wasm.gz"),
      ).toString("base64");
      file("headgate.js", `globalThis.headgateWasm="${wasm}";\n`);
    },
  };
}

/** Builds the playground on its own, for a plain file server or for opening as a file. */
export default defineConfig({
  base: "./",
  plugins: [page()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: here("../bin/playground"),
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
