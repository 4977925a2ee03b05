import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";

render(
  <Shell page="Playground">
    <h1>Playground</h1>
  </Shell>,
  document.getElementById("app")!,
);
