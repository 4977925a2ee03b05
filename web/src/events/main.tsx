import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { Events } from "./Events.tsx";

mount(
  <Shell page="Events">
    <Events />
  </Shell>,
);
