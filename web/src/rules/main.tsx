import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { Rules } from "./Rules.tsx";

mount(
  <Shell page="Rules">
    <Rules />
  </Shell>,
);
