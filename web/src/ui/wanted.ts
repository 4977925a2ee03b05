/**
 * Returns whether a text contains all that was typed into a filter: words in any order, and
 * "phrases in quotes" as they are. Case does not matter.
 */
export function wanted(typed: string): (text: string) => boolean {
  const parts = [...typed.toLowerCase().matchAll(/"([^"]*)"?|([^\s"]+)/g)]
    .map(([, phrase, word]) => (phrase ?? word ?? "").trim())
    .filter(Boolean);
  return (text) => {
    const low = text.toLowerCase();
    return parts.every((part) => low.includes(part));
  };
}
