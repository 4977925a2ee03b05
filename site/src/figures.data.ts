import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type Figures, figures } from "./figures.ts";

const file = (name: string) => fileURLToPath(new URL(`../../docs/${name}`, import.meta.url));

declare const data: Figures;

export { data };

/** Reads the figures when the site is built, so that they are those of the docs. */
export default {
  watch: [file("internals/benchmarks.md"), file("internals/accuracy.md")],
  load: (): Figures =>
    figures(
      readFileSync(file("internals/benchmarks.md"), "utf8"),
      readFileSync(file("internals/accuracy.md"), "utf8"),
    ),
};
