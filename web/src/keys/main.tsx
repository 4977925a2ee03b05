import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { Keys } from "./Keys.tsx";

render(
  <Shell page="Keys">
    <Keys />
  </Shell>,
  document.getElementById("app")!,
);
