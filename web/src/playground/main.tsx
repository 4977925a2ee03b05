import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { load } from "./load.ts";
import { Playground } from "./Playground.tsx";

render(
  <Shell page="Playground">
    <Playground load={(progress) => load("./headgate.wasm.gz", progress)} />
  </Shell>,
  document.getElementById("app")!,
);
