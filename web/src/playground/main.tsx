import { render } from "preact";
import wasm from "../../wasm/headgate.wasm.gz?url";
import { Shell } from "../shell/Shell.tsx";
import { load } from "./load.ts";
import { Playground } from "./Playground.tsx";

render(
  <Shell page="Playground">
    <Playground load={(progress) => load(wasm, progress)} />
  </Shell>,
  document.getElementById("app")!,
);
