/** How many rollouts were scored, failed or are unresolved. Each number filters by its outcome. */
import type { Filter, Outcome, Overview } from "../api";
import { Bar } from "../ui/Bar";
import { OutcomeMark } from "../ui/Chip";
import { count, percent } from "../ui/format";

interface Props {
  counts: Overview["counts"];
  filter: Filter;
  onPick: (outcome: Outcome) => void;
}

export function Counts({ counts, filter, onPick }: Props) {
  const parts: { outcome: Outcome; value: number }[] = [
    { outcome: "scored", value: counts.scored },
    { outcome: "failed", value: counts.failed },
    { outcome: "unresolved", value: counts.unresolved ?? 0 },
  ];
  const total = Math.max(counts.planned ?? 0, parts.reduce((sum, part) => sum + part.value, 0));
  return (
    <div class="counts">
      <Bar segments={parts.map(({ outcome, value }) => ({ label: outcome, value, tone: outcome }))} total={total} />
      <ul class="counts-legend">
        {parts.map(({ outcome, value }) => (
          <li key={outcome}>
            <button
              type="button"
              class={`counts-part outcome-${outcome}`}
              aria-pressed={filter.outcome?.includes(outcome) ?? false}
              disabled={value === 0}
              onClick={() => onPick(outcome)}
            >
              <OutcomeMark outcome={outcome} /> <strong>{count(value)}</strong> {outcome}{" "}
              <span class="dim">{total > 0 && percent(value / total)}</span>
            </button>
          </li>
        ))}
        {counts.planned !== null && (
          <li class="dim">
            <strong>{count(counts.planned)}</strong> planned
          </li>
        )}
      </ul>
    </div>
  );
}
