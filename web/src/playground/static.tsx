import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { loadText } from "./load.ts";
import { Playground } from "./Playground.tsx";

/** Set by headgate.js: the WebAssembly, as gzip in base64. */
declare global {
  var headgateWasm: string | undefined;
}

/** Loads headgate.js. */
function wasmText(): Promise<string> {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "./headgate.js";
    script.onload = () => resolve(globalThis.headgateWasm ?? "");
    script.onerror = () => reject(new Error("headgate.js is missing from the folder of this page"));
    document.head.append(script);
  });
}

render(
  <Shell page="Playground" alone>
    <Playground load={async () => loadText(await wasmText())} />
  </Shell>,
  document.getElementById("app")!,
);
