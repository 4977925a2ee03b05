import { render } from "preact";
import { Shell } from "../shell/Shell.tsx";
import { Queue } from "./Queue.tsx";

render(
  <Shell page="Queue">
    <Queue />
  </Shell>,
  document.getElementById("app")!,
);
