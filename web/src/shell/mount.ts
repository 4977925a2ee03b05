import { type ComponentChild, render } from "preact";

/** Shows a page in place of "loading", which render would leave where it is. */
export function mount(page: ComponentChild): void {
  const app = document.getElementById("app")!;
  app.replaceChildren();
  render(page, app);
}
