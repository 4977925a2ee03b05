import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { load } from "./load.ts";
import { Playground } from "./Playground.tsx";

mount(
  <Shell page="Playground">
    <Playground load={(progress) => load("./headgate.wasm.gz", progress)} />
  </Shell>,
);
