import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { Dashboard } from "./Dashboard.tsx";
import { keys } from "./view.ts";

render(
  <Shell page="Dashboard" keys={keys}>
    <Dashboard />
  </Shell>,
  document.getElementById("app")!,
);
