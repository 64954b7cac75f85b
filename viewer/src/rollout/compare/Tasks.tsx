/** The tasks whose rewards differ most, each a click away from its rollouts. */

import { useState } from "preact/hooks";
import type { Comparison } from "../../api";
import { href } from "../../state";
import { Button, Table } from "../../ui";
import type { Column } from "../../ui";
import { mean } from "../../ui/format";
import { visible } from "../text/visible";
import { signed } from "./Differences";

type Task = Comparison["tasks"][number];
type Change = Task["change"];

const CHANGES: { name: Change; sign: string; meaning: string }[] = [
  { name: "won", sign: "▲", meaning: "A run is better than the baseline, and none is worse." },
  { name: "lost", sign: "▼", meaning: "A run is worse than the baseline, and none is better." },
  { name: "changed", sign: "◆", meaning: "One run is better than the baseline, another is worse." },
  { name: "same", sign: "=", meaning: "The mean rewards are equal." },
];

export function Tasks({ comparison, names }: { comparison: Comparison; names: Record<string, string> }) {
  const [only, setOnly] = useState<Change | null>(null);
  const rows = comparison.tasks.filter((task) => only === null || task.change === only);
  return (
    <>
      <div class="tasks-filter" role="group" aria-label="Which tasks">
        <Button pressed={only === null} onClick={() => setOnly(null)}>
          All {comparison.tasks.length}
        </Button>
        {CHANGES.map(({ name, sign, meaning }) => (
          <ChangeButton
            key={name}
            label={`${sign} ${comparison.tasks.filter((task) => task.change === name).length} ${name}`}
            meaning={meaning}
            isPressed={only === name}
            onClick={() => setOnly(only === name ? null : name)}
          />
        ))}
      </div>
      {rows.length === 0 ? (
        <p class="dim">No task.</p>
      ) : (
        <Table caption="Tasks" columns={columnsOf(comparison, names)} rows={rows} keyOf={(row) => String(row.task)} />
      )}
    </>
  );
}

function ChangeButton({
  label,
  meaning,
  isPressed,
  onClick,
}: {
  label: string;
  meaning: string;
  isPressed: boolean;
  onClick(): void;
}) {
  return (
    <span title={meaning}>
      <Button pressed={isPressed} onClick={onClick}>
        {label}
      </Button>
    </span>
  );
}

function columnsOf(comparison: Comparison, names: Record<string, string>): Column<Task>[] {
  const { runs } = comparison;
  const values = comparison.tasks.flatMap((task) => task.rewards.filter((reward) => reward !== null));
  const scale = { low: Math.min(0, ...values), high: Math.max(1, ...values) };
  return [
    {
      key: "task",
      label: "task",
      isNumber: true,
      sortBy: (row) => row.task,
      render: (row) => <a href={href({ page: "align", runs, task: row.task })}>{row.task}</a>,
    },
    {
      key: "change",
      label: "change",
      sortBy: (row) => row.change,
      render: (row) => (
        <span class={`change-${row.change}`}>
          {CHANGES.find(({ name }) => name === row.change)?.sign} {row.change}
        </span>
      ),
    },
    {
      key: "difference",
      label: "difference",
      isNumber: true,
      hint: runs.length > 2 ? "The run that differs most, minus the baseline" : "The other run minus the baseline",
      sortBy: differenceOf,
      render: (row) => signedOrMissing(differenceOf(row)),
    },
    { key: "plot", label: "rewards", render: (row) => <Dumbbell rewards={row.rewards} scale={scale} /> },
    ...runs.map((run, index): Column<Task> => ({
      key: `run ${run}`,
      label: names[run] ?? run,
      isNumber: true,
      sortBy: (row) => row.rewards[index] ?? null,
      render: (row) => (
        <>
          <span class={`tasks-dot series-${(index % 6) + 1}`} aria-hidden="true" /> {mean(row.rewards[index])}
        </>
      ),
    })),
    {
      key: "title",
      label: "prompt",
      render: (row) => (
        <span class="tasks-title cut" dir="auto" title={visible(row.title)}>
          {visible(row.title)}
        </span>
      ),
    },
  ];
}

function differenceOf(task: Task): number | null {
  const [baseline, ...others] = task.rewards;
  if (baseline == null) return null;
  const differences = others.flatMap((reward) => (reward === null ? [] : [reward - baseline]));
  return differences.sort((a, b) => Math.abs(b) - Math.abs(a))[0] ?? null;
}

function signedOrMissing(value: number | null): string {
  return value === null ? "–" : signed(value);
}

/** The rewards on one line, from the baseline to the others. */
function Dumbbell({ rewards, scale }: { rewards: (number | null)[]; scale: { low: number; high: number } }) {
  const x = (reward: number): number => 6 + (108 * (reward - scale.low)) / (scale.high - scale.low || 1);
  const known = rewards.flatMap((reward) => (reward === null ? [] : [x(reward)]));
  return (
    <svg class="dumbbell" viewBox="0 0 120 18" width="120" height="18" aria-hidden="true">
      <line x1="6" x2="114" y1="9" y2="9" class="dumbbell-track" />
      {known.length > 1 && (
        <line x1={Math.min(...known)} x2={Math.max(...known)} y1="9" y2="9" class="dumbbell-line" />
      )}
      {rewards.map((reward, index) =>
        reward === null ? null : index === 0 ? (
          <rect key={index} x={x(reward) - 4} y="5" width="8" height="8" class="series-1" />
        ) : (
          <circle key={index} cx={x(reward)} cy="9" r="4.5" class={`series-${(index % 6) + 1}`} />
        ),
      )}
    </svg>
  );
}
