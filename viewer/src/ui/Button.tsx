/** Buttons, and links that look like them. */

import type { ComponentChildren } from "preact";

interface Look {
  kind?: "plain" | "primary" | "quiet" | "danger";
  /** What it does, if its content is only an icon. Also its tooltip. */
  label?: string;
  /** What its text means; its tooltip. */
  hint?: string;
  children: ComponentChildren;
}

export interface ButtonProps extends Look {
  onClick(): void;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
}

export function Button({ kind = "plain", label, hint, children, onClick, disabled, pressed, expanded }: ButtonProps) {
  return (
    <button
      type="button"
      class={`button button-${kind}`}
      aria-label={label}
      title={label ?? hint}
      aria-pressed={pressed}
      aria-expanded={expanded}
      disabled={disabled}
      onClick={onClick}
    >
      {children}
    </button>
  );
}

export function ButtonLink({
  kind = "plain",
  label,
  children,
  to,
  download,
}: Look & { to: string; download?: string }) {
  return (
    <a class={`button button-${kind}`} aria-label={label} title={label} href={to} download={download}>
      {children}
    </a>
  );
}
