import { mount } from "../shell/mount.ts";
import { Shell } from "../shell/Shell.tsx";
import { Dashboard } from "./Dashboard.tsx";
import { keys } from "./view.ts";

mount(
  <Shell page="Dashboard" keys={keys}>
    <Dashboard />
  </Shell>,
);
