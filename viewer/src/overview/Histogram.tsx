/** A histogram. Arrow keys move between its bars, and Enter picks one. */
import { useRef, useState } from "preact/hooks";
import { amount, number } from "../ui/format";
import { barsOf, limitsOf } from "./bins";
import type { Bar, Bins } from "./bins";
import "./histogram.css";

interface Props extends Bins {
  /** What is counted, such as "rewards of simple_agent". */
  label: string;
  isWhole?: boolean;
  max?: number;
  /** Values to mark, such as the median. */
  marks?: { at: number; name: string }[];
  format?: (value: number) => string;
  /** Called with the limits of a bar; the upper one is missing if the bar also counts everything above. */
  onPick?: ((low: number, high: number | undefined) => void) | undefined;
  tone?: "accent" | "plain";
}

export function Histogram({ low, high, counts, label, isWhole, max, marks = [], format = number, onPick, tone = "plain" }: Props) {
  const [focused, setFocused] = useState(0);
  const [shown, setShown] = useState<number | null>(null);
  const group = useRef<HTMLDivElement>(null);
  const bars = barsOf({ low, high, counts }, { isWhole: isWhole ?? false, max });
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  const shownBar = shown === null ? undefined : bars[shown];
  const pick = (at: number) => {
    const limits = limitsOf(bars, at);
    onPick?.(limits.low, limits.high);
  };
  const move = (event: KeyboardEvent) => {
    const to = movedTo(event.key, focused, bars.length);
    if (to === null) return;
    event.preventDefault();
    setFocused(to);
    (group.current?.children[to] as HTMLElement | undefined)?.focus();
  };

  if (bars.length === 1) return <p class="histogram-hint">all the same: {format(low)}</p>;
  return (
    <div class={`histogram ${tone}`}>
      <p class="histogram-hint">{shownBar ? describe(shownBar, format) : `most: ${amount(most, "rollout")}`}</p>
      <div class="histogram-plot">
        <div
          class="histogram-bars"
          role="group"
          aria-label={`Histogram of ${label}`}
          ref={group}
          onKeyDown={move}
          onPointerLeave={() => setShown(null)}
        >
          {bars.map((bar, at) => (
            <button
              key={at}
              type="button"
              class="histogram-bar"
              tabIndex={at === Math.min(focused, bars.length - 1) ? 0 : -1}
              aria-label={describe(bar, format)}
              aria-disabled={!onPick || bar.count === 0}
              onClick={() => bar.count > 0 && pick(at)}
              onFocus={() => (setFocused(at), setShown(at))}
              onBlur={() => setShown(null)}
              onPointerEnter={() => setShown(at)}
            >
              <span style={{ height: bar.count === 0 ? "0" : `max(2px, ${(100 * bar.count) / most}%)` }} />
            </button>
          ))}
        </div>
        {marks.map(({ at, name }) => (
          <span key={name} class={`histogram-mark mark-${name}`} style={{ left: `${100 * shareOf(bars, at)}%` }} aria-hidden="true" />
        ))}
      </div>
      <div class="histogram-axis" aria-hidden="true">
        <span>{format(low)}</span>
        {high > low && <span>{format(high)}{bars.at(-1)?.isOpen && " or more"}</span>}
      </div>
    </div>
  );
}

function describe({ from, to, count, isOpen }: Bar, format: (value: number) => string): string {
  const [first, last] = [format(from), format(to)];
  const range = isOpen ? `${first} or more` : first === last ? first : `${first} to ${last}`;
  return `${range}: ${amount(count, "rollout")}`;
}

/** Where a value is between the left and the right end. A bar for a single number has it in its middle. */
function shareOf(bars: Bar[], value: number): number {
  const [first, last] = [bars[0], bars.at(-1)];
  if (!first || !last) return 0;
  const margin = first.from === first.to ? 0.5 : 0;
  const share = (value - first.from + margin) / (last.to - first.from + 2 * margin);
  return Math.min(1, Math.max(0, share));
}

function movedTo(key: string, at: number, count: number): number | null {
  if (key === "ArrowRight") return Math.min(at + 1, count - 1);
  if (key === "ArrowLeft") return Math.max(at - 1, 0);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : null;
}
