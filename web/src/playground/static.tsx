import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { Framed } from "./Framed.tsx";
import { loadText } from "./load.ts";
import { type Load, Playground } from "./Playground.tsx";

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

const load: Load = async () => loadText(await wasmText());

// The site shows it in a frame (?frame), and on its own with a way back.
const home = document.getElementById("app")!.dataset.home;

mount(
  location.search === "?frame" ? (
    <Framed load={load} />
  ) : (
    <Shell page="Playground" alone>
      {home && (
        <a class="back small" href={home}>
          ← Documentation
        </a>
      )}
      <Playground load={load} />
    </Shell>
  ),
);
