/** A row of numbers with their names. */
import type { ComponentChildren } from "preact";
import "./figures.css";

export function Figures({ children }: { children: ComponentChildren }) {
  return <dl class="figures">{children}</dl>;
}

export function Figure({ name, value, note = "" }: { name: string; value: ComponentChildren; note?: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong> <span class="dim">{note}</span>
      </dd>
    </div>
  );
}
