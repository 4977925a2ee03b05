// What VitePress's search has too much: it calls its dialog a button, and its results
// options, which must not contain links. A label of a result says what its link says.
const wrong: readonly (readonly [string, readonly string[]])[] = [
  ["", ["aria-expanded", "aria-haspopup", "aria-labelledby", "aria-owns"]],
  [".results", ["role", "aria-labelledby"]],
  [".results > li", ["role", "aria-selected"]],
  [".results a", ["aria-label"]],
  ["kbd", ["aria-label"]],
];

/** Corrects the roles of the search whenever it opens or shows other results. */
export function correctRoles(): void {
  const observer = new MutationObserver(() => {
    const box = document.querySelector(".VPLocalSearchBox");
    if (!box) return;
    for (const [selector, attributes] of wrong) {
      for (const element of selector ? box.querySelectorAll(selector) : [box]) {
        for (const name of attributes) element.removeAttribute(name);
      }
    }
    box.setAttribute("role", "dialog");
    box.setAttribute("aria-modal", "true");
    box.setAttribute("aria-label", "Search");
  });
  observer.observe(document.body, { childList: true, subtree: true });
}
