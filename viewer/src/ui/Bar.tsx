/** A stacked bar. */

import { count } from "./format";

export interface Segment {
  label: string;
  value: number;
  tone: "scored" | "failed" | "unresolved" | "running" | "accent";
}

export interface BarProps {
  segments: Segment[];
  /** The length of the whole bar; the rest stays empty. */
  total?: number;
}

export function Bar({ segments, total }: BarProps) {
  const sum = segments.reduce((old, segment) => old + segment.value, 0);
  const whole = Math.max(total ?? sum, sum);
  const text = segments.map((segment) => `${count(segment.value)} ${segment.label}`).join(", ");
  return (
    <span class="bar" role="img" aria-label={text} title={text}>
      {whole > 0 &&
        segments.map(
          (segment) =>
            segment.value > 0 && (
              <span
                class={`bar-part bar-${segment.tone}`}
                style={{ flexBasis: `${(segment.value / whole) * 100}%` }}
              />
            ),
        )}
    </span>
  );
}

/** Progress of something under way. */
export function Progress({ value, of, label }: { value: number; of: number; label: string }) {
  return (
    <span class="progress">
      <progress value={value} max={of || 1} aria-label={label} />
      <span class="dim">{label}</span>
    </span>
  );
}
