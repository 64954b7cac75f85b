/** The mean reward of each run as a dot with its confidence interval. */

import type { Comparison } from "../../api";
import { mean, number } from "../../ui/format";

interface Props {
  comparison: Comparison;
  names: Record<string, string>;
}

export function Means({ comparison, names }: Props) {
  const ends = comparison.means.flatMap(({ mean: value, ci }) => [value, ...(ci ?? [])]);
  const low = Math.min(0, ...ends);
  const high = Math.max(1, ...ends);
  const percent = (value: number): number => (100 * (value - low)) / (high - low);
  return (
    <table class="means">
      <caption class="hidden">Mean reward of each run over the shared tasks, with the 95% confidence interval</caption>
      <tbody>
        {comparison.means.map(({ run, mean: value, ci }, index) => (
          <tr key={run}>
            <th scope="row">
              {names[run] ?? run}
              {index === 0 && <span class="dim"> baseline</span>}
            </th>
            <td class="means-plot" aria-hidden="true">
              <span class="means-track">
                {ci && (
                  <span
                    class="means-ci"
                    style={{ left: `${percent(ci[0])}%`, width: `${percent(ci[1]) - percent(ci[0])}%` }}
                  />
                )}
                <span class={`means-dot series-${(index % 6) + 1}`} style={{ left: `${percent(value)}%` }} />
              </span>
            </td>
            <td class="number means-value">{mean(value)}</td>
            <td class="dim means-range">{ci ? `${mean(ci[0])} to ${mean(ci[1])}` : "no interval"}</td>
          </tr>
        ))}
        <tr class="means-axis" aria-hidden="true">
          <td />
          <td>
            <span>{number(low)}</span>
            <span>{number((low + high) / 2)}</span>
            <span>{number(high)}</span>
          </td>
          <td />
          <td />
        </tr>
      </tbody>
    </table>
  );
}
