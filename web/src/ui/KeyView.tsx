import type { Key } from "../data/types.ts";
import { escaped } from "./format.ts";

/** A key, part by part. attributes names the attribute of each part, if known. */
export function KeyView(props: {
  value: Key | null | undefined;
  hash?: string | undefined;
  attributes?: readonly string[] | undefined;
}) {
  const { value, hash, attributes } = props;
  if (!value) {
    return (
      <code class="key hashed" title="Hash of the key (admin.keys: hashed)">
        #{hash ?? "?"}
      </code>
    );
  }
  if (value.length === 0) return <span class="muted">all requests</span>;
  return (
    <span class="key-parts">
      {value.map((part, i) => (
        // Parts are identified by their position only.
        <code key={i} class="key" title={attributes?.[i]}>
          {part === null ? (
            <i class="muted">none</i>
          ) : part === "" ? (
            <i class="muted">empty</i>
          ) : (
            escaped(part)
          )}
        </code>
      ))}
    </span>
  );
}
