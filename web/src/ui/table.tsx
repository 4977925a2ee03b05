import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** The column that a table is sorted by, and whether in descending order. */
export interface Order<C extends string> {
  by: C;
  down: boolean;
}

/** Compares two values of a column: numbers, or texts. */
export function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}

const collator = new Intl.Collator("en", { numeric: true });

/** Sorts rows by the value that of returns for each; the sort is stable. */
export function sorted<T>(rows: readonly T[], of: (row: T) => string | number, down: boolean): T[] {
  return [...rows].sort((a, b) => (down ? compare(of(b), of(a)) : compare(of(a), of(b))));
}

/** The heading of a sortable column. */
export function SortHead<C extends string>(props: {
  column: C;
  order: Order<C>;
  onOrder: (order: Order<C>) => void;
  /** A column of numbers, which is first sorted in descending order. */
  num?: boolean;
  title?: string;
  children: ComponentChildren;
}) {
  const { column, order, num } = props;
  const on = order.by === column;
  return (
    <th
      scope="col"
      class={num ? "num" : undefined}
      aria-sort={on ? (order.down ? "descending" : "ascending") : "none"}
    >
      <button
        type="button"
        class="sort"
        title={props.title}
        onClick={() => props.onOrder({ by: column, down: on ? !order.down : Boolean(num) })}
      >
        {props.children}
        <span class="sort-mark" aria-hidden="true">
          {on ? (order.down ? "↓" : "↑") : ""}
        </span>
      </button>
    </th>
  );
}

/** Splits the rows of a table into pages. */
export function usePages<T>(
  rows: readonly T[],
  size: number,
  /** What the rows are, to tell tables of a page apart. */
  what: string,
): { shown: readonly T[]; pager: ComponentChildren } {
  const [wanted, setWanted] = useState(0);
  const pages = Math.max(1, Math.ceil(rows.length / size));
  const page = Math.min(wanted, pages - 1);
  const shown = rows.slice(page * size, (page + 1) * size);
  const pager = pages > 1 && (
    <nav class="pager" aria-label={`Pages of ${what}`}>
      <button
        type="button"
        class="button small-button"
        disabled={page === 0}
        onClick={() => setWanted(page - 1)}
      >
        Previous
      </button>
      <span class="num small" role="status">
        {(page * size + 1).toLocaleString("en-US")}–{(page * size + shown.length).toLocaleString("en-US")} of{" "}
        {rows.length.toLocaleString("en-US")}
      </span>
      <button
        type="button"
        class="button small-button"
        disabled={page === pages - 1}
        onClick={() => setWanted(page + 1)}
      >
        Next
      </button>
    </nav>
  );
  return { shown, pager };
}

/**
 * A table that may be wider than the page. It scrolls, also by keyboard, and fades
 * at an edge with more content behind it.
 */
export function Scroll(props: { label: string; children: ComponentChildren }) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => {
      const hidden = element.scrollWidth - element.clientWidth;
      element.toggleAttribute("data-more-left", element.scrollLeft > 1);
      element.toggleAttribute("data-more-right", element.scrollLeft < hidden - 1);
    };
    look();
    element.addEventListener("scroll", look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    return () => {
      element.removeEventListener("scroll", look);
      observer.disconnect();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: keyboard users must be able to scroll
    <section ref={box} class="scroll-x" aria-label={props.label} tabIndex={0}>
      {props.children}
    </section>
  );
}
