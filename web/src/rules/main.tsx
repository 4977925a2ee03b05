import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { Rules } from "./Rules.tsx";

render(
  <Shell page="Rules">
    <Rules />
  </Shell>,
  document.getElementById("app")!,
);
