import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Icon } from "./Icon.tsx";

/**
 * A modal dialog. The browser keeps the focus in it and returns it to the element
 * that opened it. Escape or a click outside closes it.
 */
export function Dialog(props: {
  title: string;
  onClose: () => void;
  wide?: boolean;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useRef<HTMLHeadingElement>(null);
  const id = useId();
  useEffect(() => {
    const was = document.activeElement;
    dialog.current?.showModal();
    // The browser would focus the button that closes, so that Enter ends what was opened.
    const field = dialog.current?.querySelector<HTMLElement>("[autofocus], input, select, textarea");
    (field ?? title.current)?.focus();
    return () => {
      if (was instanceof HTMLElement && was.isConnected) was.focus();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same
    <dialog
      ref={dialog}
      class={`dialog ${props.wide ? "wide-dialog" : ""}`}
      aria-labelledby={id}
      onClose={props.onClose}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div class="dialog-inner">
        <div class="dialog-head">
          <h2 id={id} ref={title} tabIndex={-1}>
            {props.title}
          </h2>
          <button
            type="button"
            class="button quiet small-button"
            aria-label="Close"
            onClick={() => dialog.current?.close()}
          >
            <Icon name="close" />
          </button>
        </div>
        {props.children}
      </div>
    </dialog>
  );
}
