import { useId, useState } from "preact/hooks";

/** With more options than that, a list is searched by typing. */
const few = 20;

interface Props<T extends string> {
  label: string;
  value: T;
  /** Each value with its text. */
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  wide?: boolean;
}

/** A labelled list to choose one value from; a long one can be searched. */
export function Choice<T extends string>(props: Props<T>) {
  const id = useId();
  return (
    <div class={`field ${props.wide ? "wide" : ""}`}>
      <label for={id}>{props.label}</label>
      {props.options.length > few ? <Searched id={id} {...props} /> : <Listed id={id} {...props} />}
    </div>
  );
}

function Listed<T extends string>(props: Props<T> & { id: string }) {
  return (
    <select
      id={props.id}
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
  );
}

function Searched<T extends string>(props: Props<T> & { id: string }) {
  // What is typed, until it is one of the options or the field is left.
  const [typed, setTyped] = useState<string>();
  const chosen = props.options.find(([value]) => value === props.value)?.[1] ?? props.value;
  return (
    <>
      <input
        id={props.id}
        class="input"
        list={`${props.id}-all`}
        value={typed ?? chosen}
        placeholder={`search ${props.options.length}`}
        spellcheck={false}
        autocomplete="off"
        // Browsers offer only what matches the text: the first key replaces it all.
        onFocus={(e) => e.currentTarget.select()}
        onInput={(e) => {
          const text = e.currentTarget.value;
          const option = props.options.find(([, t]) => t === text);
          setTyped(option ? undefined : text);
          if (option) props.onChange(option[0]);
        }}
        onBlur={() => setTyped(undefined)}
      />
      <datalist id={`${props.id}-all`}>
        {props.options.map(([value, text]) => (
          <option key={value} value={text} />
        ))}
      </datalist>
    </>
  );
}
