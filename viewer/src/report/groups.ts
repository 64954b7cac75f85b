/** Groups of a report's rollouts, computed in the page from its rows as nemo_gym/viewer/groups.py does from its index. */
import type { Groups, Metrics, Numbers, RolloutRow, TaskKind, TaskRow, TaskSort, TasksPage } from "../api";
import { fieldOf } from "../filter";
import type { Known } from "../filter";
import type { Order } from "../source";

const PAGE = 100;

export function tasksOf(
  rows: RolloutRow[], kind: TaskKind | null, sort: TaskSort, order: Order, offset: number,
): TasksPage {
  const byTask = new Map<number, RolloutRow[]>();
  for (const row of rows) byTask.set(row.task, [...(byTask.get(row.task) ?? []), row]);
  const tasks = [...byTask].map(([task, rollouts]) => taskOf(task, rollouts));
  const counted = (wanted: TaskKind) => tasks.filter((each) => kindOf(each) === wanted).length;
  const counts = { all: tasks.length, never: counted("never"), mixed: counted("mixed"), always: counted("always") };
  const sign = order === "desc" ? -1 : 1;
  const chosen = tasks.filter((each) => kind === null || kindOf(each) === kind).sort((a, b) => {
    const [left, right] = [a[sort], b[sort]];
    // Missing values are last in both orders.
    if (left === null || right === null) return Number(left === null) - Number(right === null) || a.task - b.task;
    return sign * (left - right) || a.task - b.task;
  });
  return { counts, offset, rows: chosen.slice(offset, offset + PAGE) };
}

function kindOf({ low, high }: TaskRow): TaskKind | null {
  if (low === null || high === null) return null;
  return low < high ? "mixed" : high < 1 ? "never" : "always";
}

function taskOf(task: number, rollouts: RolloutRow[]): TaskRow {
  return { task, title: rollouts[0]?.title ?? "", ...numbersOf(rollouts) };
}

/** The rollouts with the same value of a column or a field, ordered by the value. */
export function groupsOf(chosen: Known[], by: string): Groups {
  const groups = new Map<string, RolloutRow[]>();
  for (const known of chosen) {
    const value = by in known.row ? known.row[by as keyof RolloutRow] : fieldOf(known, by);
    if (value === null || value === undefined) continue;
    groups.set(String(value), [...(groups.get(String(value)) ?? []), known.row]);
  }
  const rows = [...groups].map(([value, rollouts]) => ({ value, ...numbersOf(rollouts) }));
  return { total: rows.length, rows: rows.sort((a, b) => a.value.localeCompare(b.value, "en", { numeric: true })) };
}

/** The metrics that contain words, from those that the report has. */
export function metricsOf(all: Metrics, find: string, whole: boolean): Metrics {
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = all.rows.filter(({ agent, name, meaning, is_key }) => {
    const text = `${name} ${agent ?? ""} ${meaning ?? ""}`.toLowerCase();
    return (whole || words.length > 0 || !all.has_keys || is_key) && words.every((word) => text.includes(word));
  });
  return { ...all, total: rows.length, rows };
}

function numbersOf(rollouts: RolloutRow[]): Numbers {
  const rewards = rollouts.flatMap(({ reward }) => reward ?? []);
  const mean = meanOf(rewards);
  const squares = rewards.reduce((sum, reward) => sum + (reward - (mean ?? 0)) ** 2, 0);
  return {
    rollouts: rollouts.length,
    scored: rewards.length,
    solved: rewards.filter((reward) => reward >= 1).length,
    mean,
    low: rewards.length > 0 ? Math.min(...rewards) : null,
    high: rewards.length > 0 ? Math.max(...rewards) : null,
    std: rewards.length > 1 ? Math.sqrt(squares / (rewards.length - 1)) : null,
    input_tokens: meanOf(rollouts.flatMap((row) => row.input_tokens ?? [])),
    output_tokens: meanOf(rollouts.flatMap((row) => row.output_tokens ?? [])),
    seconds: meanOf(rollouts.flatMap((row) => row.seconds ?? [])),
    failed: rollouts.filter(({ outcome }) => outcome === "failed").length,
  };
}

function meanOf(values: number[]): number | null {
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}
