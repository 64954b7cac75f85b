/** The overview of a filtered report, computed in the page from its rows as nemo_gym/viewer/overview.py does from its index. */
import type { Overview, RolloutRow } from "../api";
import type { Known } from "../filter";

const BINS = 20;
const MOST_ROWS = 200;
const MOST_REPEATS = 64;
const MOST_SQUARES = 1000;

/** Parts that rows cannot give, such as the progress over time, are empty. */
export function overviewOf(chosen: Known[], whole: Overview): Overview {
  const rows = chosen.map(({ row }) => row);
  return {
    counts: countsOf(rows, whole.counts.planned !== null),
    rewards: rewardsOf(rows),
    heatmap: heatmapOf(rows),
    failures: failuresOf(chosen),
    progress: { at_s: [], finished: [], in_flight: [] },
    distributions: distributionsOf(rows),
    components: componentsOf(chosen),
    sampled: null,
  };
}

function countsOf(rows: RolloutRow[], isPlanned: boolean): Overview["counts"] {
  const counted = (outcome: RolloutRow["outcome"]) => rows.filter((row) => row.outcome === outcome).length;
  return {
    planned: isPlanned ? rows.length : null,
    scored: counted("scored"),
    failed: counted("failed"),
    unresolved: isPlanned ? counted("unresolved") : null,
  };
}

function rewardsOf(rows: RolloutRow[]): Overview["rewards"] {
  const groups = [...groupBy(rows.filter(isScored), (row) => row.agent)];
  groups.sort(([a], [b]) => ((a ?? "") < (b ?? "") ? -1 : 1));
  return groups.map(([agent, group]) => {
    const rewards = group.map((row) => row.reward).sort((a, b) => a - b);
    let [low, high] = [rewards[0] ?? 0, rewards.at(-1) ?? 1];
    if (low >= 0 && high <= 1) [low, high] = [0, 1];
    return { agent, low, high, counts: binned(rewards, low, high), mean: meanOf(rewards), ci: null };
  });
}

type Scored = RolloutRow & { reward: number };

function isScored(row: RolloutRow): row is Scored {
  return row.outcome === "scored" && row.reward !== null;
}

function heatmapOf(rows: RolloutRow[]): Overview["heatmap"] {
  const tasks = [...new Set(rows.map((row) => row.task))].sort((a, b) => a - b);
  const isLarge = tasks.length > MOST_ROWS;
  const perGroup = Math.max(1, Math.ceil(tasks.length / (isLarge ? MOST_SQUARES : MOST_ROWS)));
  const ofRepeats = rows.reduce((most, row) => Math.max(most, row.repeat + 1), 0);
  const perColumn = Math.max(1, isLarge ? ofRepeats : Math.ceil(ofRepeats / MOST_REPEATS));
  const repeats = Math.ceil(ofRepeats / perColumn);
  const groupOf = new Map(tasks.map((task, at) => [task, Math.floor(at / perGroup)]));
  const groups = Array.from({ length: Math.ceil(tasks.length / perGroup) }, (_, at) => at);
  const found = groups.map(() => Array.from({ length: repeats }, (): RolloutRow[] => []));
  for (const row of rows) found[groupOf.get(row.task) ?? 0]?.[Math.floor(row.repeat / perColumn)]?.push(row);
  return {
    tasks: groups.map((at) => ({
      first: tasks[at * perGroup] ?? 0,
      count: Math.min(perGroup, tasks.length - at * perGroup),
    })),
    repeats,
    per_column: perColumn,
    of_repeats: ofRepeats,
    cells: found.map((cells) => cells.map(cellOf)),
  };
}

function cellOf(rows: RolloutRow[]): number | null | "failed" {
  const scored = rows.filter(isScored);
  if (scored.length > 0) return meanOf(scored.map((row) => row.reward));
  return rows.some((row) => row.outcome === "failed") ? "failed" : null;
}

function failuresOf(chosen: Known[]): Overview["failures"] {
  const failed = chosen.filter(({ row }) => row.outcome === "failed");
  const groups = groupBy(failed, ({ row }) => JSON.stringify([row.failure, row.tier, row.server]));
  const causes = [...groups.values()].flatMap((group) => {
    const first = group[0];
    if (!first) return [];
    const { row, rollout } = first;
    const example = { task: row.task, repeat: row.repeat, message: rollout?.failure?.message ?? "" };
    return [{ cause: row.failure ?? "unknown", tier: row.tier, server: row.server, count: group.length, example }];
  });
  return causes.sort((a, b) => b.count - a.count);
}

function distributionsOf(rows: RolloutRow[]): Overview["distributions"] {
  const names = ["steps", "input_tokens", "output_tokens", "seconds"] as const;
  return names.flatMap((name) => {
    const values = rows.flatMap((row) => row[name] ?? []).sort((a, b) => a - b);
    const [low, max] = [values[0], values.at(-1)];
    if (low === undefined || max === undefined) return [];
    // Few outliers must not squeeze all others into one bin, so the last bin has all larger values.
    const high = Math.min(max, Math.max((values[Math.floor(0.99 * (values.length - 1))] ?? max) * 1.25, low));
    const quantiles = { p50: quantile(values, 0.5), p95: quantile(values, 0.95), max };
    return [{ name, low, high, counts: binned(values, low, high), mean: meanOf(values), ...quantiles }];
  });
}

function componentsOf(chosen: Known[]): Overview["components"] {
  const parts = chosen.flatMap(({ row, rollout }) =>
    Object.entries(rollout?.reward_components ?? {}).map(([name, value]) => ({ agent: row.agent, name, value })),
  );
  return [...groupBy(parts, ({ agent, name }) => JSON.stringify([agent, name])).values()].flatMap((group) => {
    const first = group[0];
    if (!first) return [];
    const values = group.map((each) => each.value);
    const extent = { min: Math.min(...values), max: Math.max(...values) };
    return [{ agent: first.agent, name: first.name, mean: meanOf(values), ...extent, count: values.length }];
  });
}

/** Count the values per bin; the last bin includes all larger values. */
function binned(values: number[], low: number, high: number): number[] {
  const counts = new Array<number>(BINS).fill(0);
  const scale = high > low ? BINS / (high - low) : 0;
  for (const value of values) {
    const bin = Math.min(BINS - 1, Math.floor((value - low) * scale));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  return counts;
}

function meanOf(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function quantile(sorted: number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

function groupBy<T, K>(values: T[], keyOf: (value: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const value of values) {
    const group = groups.get(keyOf(value));
    if (group) group.push(value);
    else groups.set(keyOf(value), [value]);
  }
  return groups;
}
