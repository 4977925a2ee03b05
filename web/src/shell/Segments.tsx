import { useId } from "preact/hooks";

/**
 * Segments offers a few options of which one is chosen: radio buttons that look
 * like one switch. The legend is for screen readers only.
 */
export function Segments<T extends string>(props: {
  legend: string;
  value: T;
  options: readonly { value: T; text: string; title?: string }[];
  onChange: (value: T) => void;
}) {
  const name = useId();
  return (
    <fieldset class="segments">
      <legend class="hidden">{props.legend}</legend>
      {props.options.map((option) => (
        <label key={option.value} title={option.title}>
          <input
            type="radio"
            name={name}
            value={option.value}
            checked={option.value === props.value}
            onChange={() => props.onChange(option.value)}
          />
          {option.text}
        </label>
      ))}
    </fieldset>
  );
}
