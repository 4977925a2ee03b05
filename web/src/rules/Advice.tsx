import { useSignal } from "@preact/signals";
import { get, Problem } from "../data/api.ts";
import type { Rule } from "../data/types.ts";

/** How often a rule refuses clients that stay below it, computed by the server when asked for. */
export function Advice(props: { rule: Rule }) {
  const { domain, name } = props.rule;
  const told = useSignal("");
  const loading = useSignal(false);
  const ask = async () => {
    if (told.value) {
      told.value = "";
      return;
    }
    loading.value = true;
    const query = new URLSearchParams({ domain, rule: name });
    try {
      told.value = (await get<{ text: string }>(`/v1/advice?${query}`)).text;
    } catch (error) {
      told.value = error instanceof Problem ? error.message : "The server does not respond.";
    }
    loading.value = false;
  };
  return (
    <>
      <button
        type="button"
        class="button small-button advice-button"
        aria-expanded={told.value !== ""}
        aria-label={`Advice for ${name}`}
        disabled={loading.value}
        onClick={() => void ask()}
      >
        Advice
      </button>
      <p class="small advice" role="status">
        {told.value}
      </p>
    </>
  );
}
