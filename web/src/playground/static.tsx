import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { loadText } from "./load.ts";
import { Playground } from "./Playground.tsx";

/** What headgate.js leaves: the arithmetic, as gzip in base64. */
declare global {
  var headgateWasm: string | undefined;
}

/** Runs headgate.js, once the page is there. */
function arithmetic(): Promise<string> {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "./headgate.js";
    script.onload = () => resolve(globalThis.headgateWasm ?? "");
    script.onerror = () => reject(new Error("headgate.js is not beside this page"));
    document.head.append(script);
  });
}

render(
  <Shell page="Playground" alone>
    <Playground load={async () => loadText(await arithmetic())} />
  </Shell>,
  document.getElementById("app")!,
);
