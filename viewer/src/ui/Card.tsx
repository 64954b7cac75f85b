/** A titled part of a page. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export interface CardProps {
  title?: ComponentChildren;
  /** Small controls at the right of the title. */
  actions?: ComponentChildren;
  children: ComponentChildren;
  wide?: boolean;
}

export function Card({ title, actions, children, wide = false }: CardProps) {
  const id = useId();
  return (
    <section class={wide ? "card card-wide" : "card"} aria-labelledby={title ? id : undefined}>
      {title && (
        <header class="card-head">
          <h2 id={id}>{title}</h2>
          {actions && <div class="card-actions">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}
