/** Each run against the baseline: the difference with its interval, and the tasks won, lost and same. */

import type { Comparison } from "../../api";
import { mean } from "../../ui/format";

type Difference = Comparison["differences"][number];

const KINDS = [
  { name: "won", meaning: "better than the baseline" },
  { name: "lost", meaning: "worse than the baseline" },
  { name: "same", meaning: "the same mean reward" },
] as const;

export function Differences({ differences, names }: { differences: Difference[]; names: Record<string, string> }) {
  const ends = differences.flatMap(({ mean: value, ci }) => [value, ...(ci ?? [])]);
  const reach = Math.max(0.05, ...ends.map(Math.abs)) * 1.1;
  return (
    <div class="differences">
      {differences.map((difference) => (
        <section key={difference.run} class="difference">
          <h3>{names[difference.run] ?? difference.run}</h3>
          <DifferencePlot difference={difference} reach={reach} />
          <Shares difference={difference} />
        </section>
      ))}
    </div>
  );
}

function DifferencePlot({ difference, reach }: { difference: Difference; reach: number }) {
  const { mean: value, ci, p } = difference;
  const percent = (here: number): number => 50 + (50 * here) / reach;
  const isClear = ci !== null && (ci[0] > 0 || ci[1] < 0);
  return (
    <>
      <div class="difference-plot" aria-hidden="true">
        <span class="difference-zero" />
        {ci && (
          <span
            class="means-ci"
            style={{ left: `${percent(ci[0])}%`, width: `${percent(ci[1]) - percent(ci[0])}%` }}
          />
        )}
        <span class={`means-dot ${value >= 0 ? "is-up" : "is-down"}`} style={{ left: `${percent(value)}%` }} />
      </div>
      <p class="difference-text">
        <strong>{signed(value)}</strong>
        <span class="dim">
          {ci ? ` (95% CI ${signed(ci[0])} to ${signed(ci[1])})` : ""}
          {p === null ? "" : `, p ${p < 0.001 ? "< 0.001" : `= ${p.toFixed(3)}`}`}.
        </span>{" "}
        {ci && <span class="dim">{isClear ? "The interval excludes 0." : "The interval includes 0."}</span>}
      </p>
    </>
  );
}

function Shares({ difference }: { difference: Difference }) {
  const total = KINDS.reduce((sum, { name }) => sum + difference[name], 0);
  return (
    <>
      <div class="shares" aria-hidden="true">
        {KINDS.map(({ name }) =>
          difference[name] > 0 ? (
            <span key={name} class={`share-${name}`} style={{ flexBasis: `${(100 * difference[name]) / total}%` }} />
          ) : null,
        )}
      </div>
      <ul class="shares-legend">
        {KINDS.map(({ name, meaning }) => (
          <li key={name} title={meaning}>
            <span class={`share-key share-${name}`} aria-hidden="true" />
            {difference[name]} {name}
          </li>
        ))}
      </ul>
    </>
  );
}

export function signed(value: number): string {
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${mean(Math.abs(value))}`;
}
