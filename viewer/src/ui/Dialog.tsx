/** A modal dialog. Escape and a click outside close it. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./Button";

export interface DialogProps {
  title: string;
  onClose(): void;
  children: ComponentChildren;
  /** Buttons below. */
  actions?: ComponentChildren;
}

export function Dialog({ title, onClose, children, actions }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      class="dialog"
      ref={dialog}
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-body">
        <header class="card-head">
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" label="Close" onClick={onClose}>
            ×
          </Button>
        </header>
        {children}
        {actions && <footer class="dialog-actions">{actions}</footer>}
      </div>
    </dialog>
  );
}
