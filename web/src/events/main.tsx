import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { Events } from "./Events.tsx";

render(
  <Shell page="Events">
    <Events />
  </Shell>,
  document.getElementById("app")!,
);
