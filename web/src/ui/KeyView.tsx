import type { Key } from "../data/types.ts";

/** A key, part by part. attributes are what the parts are of, if that is known. */
export function KeyView(props: {
  value: Key | null | undefined;
  hash?: string | undefined;
  attributes?: readonly string[] | undefined;
}) {
  const { value, hash, attributes } = props;
  if (!value) {
    return (
      <code class="key hashed" title="A hash of the key: admin.keys is hashed">
        #{hash ?? "?"}
      </code>
    );
  }
  if (value.length === 0) return <span class="muted">everyone together</span>;
  return (
    <span class="key-parts">
      {value.map((part, i) => (
        // Parts have no identity but their place.
        <code key={i} class="key" title={attributes?.[i]}>
          {part === null ? <i class="muted">none</i> : part === "" ? <i class="muted">empty</i> : part}
        </code>
      ))}
    </span>
  );
}
