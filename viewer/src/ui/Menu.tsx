/** A button that opens a panel. Escape, a click elsewhere, or leaving it by Tab closes it. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

export interface MenuProps {
  label: ComponentChildren;
  /** The button's name for screen readers, if `label` is an icon. */
  name?: string;
  /** Opens the panel from its right edge. */
  alignRight?: boolean;
  kind?: "plain" | "quiet";
  children: (close: () => void) => ComponentChildren;
}

export function Menu({ label, name, alignRight = false, kind = "plain", children }: MenuProps) {
  const [isOpen, setIsOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const close = () => {
    setIsOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!isOpen) return;
    root.current?.querySelector<HTMLElement>(".menu-panel :is(input, button, a, select)")?.focus();
    const closeOutside = (event: Event) => {
      if (event.target instanceof Node && !root.current?.contains(event.target)) setIsOpen(false);
    };
    addEventListener("pointerdown", closeOutside);
    addEventListener("focusin", closeOutside);
    return () => {
      removeEventListener("pointerdown", closeOutside);
      removeEventListener("focusin", closeOutside);
    };
  }, [isOpen]);
  return (
    <div class="menu" ref={root} onKeyDown={(event) => isOpen && onMenuKey(event, close)}>
      <button
        type="button"
        class={`button button-${kind}`}
        ref={button}
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        aria-label={name}
        title={name}
        onClick={() => setIsOpen(!isOpen)}
      >
        {label}
      </button>
      {isOpen && (
        <div class={alignRight ? "menu-panel menu-right" : "menu-panel"} id={id}>
          {children(close)}
        </div>
      )}
    </div>
  );
}

export interface MenuItemProps {
  onClick(): void;
  children: ComponentChildren;
  checked?: boolean;
  /** Small text at the right, for example a count. */
  aside?: ComponentChildren;
}

export function MenuItem({ onClick, children, checked, aside }: MenuItemProps) {
  return (
    <button type="button" class="menu-item" aria-pressed={checked} onClick={onClick}>
      {checked !== undefined && (
        <span class="check" aria-hidden="true">
          {checked ? "✓" : ""}
        </span>
      )}
      <span class="cut">{children}</span>
      {aside !== undefined && <span class="menu-aside">{aside}</span>}
    </button>
  );
}

/** The arrow keys move between what can be focused. */
function onMenuKey(event: KeyboardEvent, close: () => void): void {
  if (event.key === "Escape") {
    event.stopPropagation();
    close();
    return;
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const panel = (event.currentTarget as HTMLElement).querySelector(".menu-panel");
  const stops = [...(panel?.querySelectorAll<HTMLElement>("input, button, a, select") ?? [])];
  const at = stops.indexOf(document.activeElement as HTMLElement);
  const next = stops[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) {
    event.preventDefault();
    next.focus();
  }
}
