import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { Keys } from "./Keys.tsx";

mount(
  <Shell page="Keys">
    <Keys />
  </Shell>,
);
