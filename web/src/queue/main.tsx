import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { Queue } from "./Queue.tsx";

mount(
  <Shell page="Queue">
    <Queue />
  </Shell>,
);
