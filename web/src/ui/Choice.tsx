import { useId } from "preact/hooks";

/** A labelled list to choose one value from. */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  /** Each value with its text. */
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  wide?: boolean;
}) {
  const id = useId();
  return (
    <div class={`field ${props.wide ? "wide" : ""}`}>
      <label for={id}>{props.label}</label>
      <select
        id={id}
        class="input"
        value={props.value}
        onChange={(e) => props.onChange(e.currentTarget.value as T)}
      >
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}
