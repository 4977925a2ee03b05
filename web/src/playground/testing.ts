import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { Core } from "./wasm.ts";

const wasm = new URL(
  "../../../internal/door/admin/dashboard/playground/headgate.wasm.gz",
  `file://${import.meta.dirname}/`,
);

/** Starts the compiled WebAssembly, for tests. */
export async function core(): Promise<Core> {
  return Core.start(await WebAssembly.compile(gunzipSync(readFileSync(wasm))));
}
