/** The columns of the table of runs. */

import type { Run } from "../../api";
import { href } from "../../state";
import { Bar, Progress, StateChip } from "../../ui";
import type { Column, Segment } from "../../ui";
import { bytes, count, dateTime, mean, percent, seconds } from "../../ui/format";
import { visible } from "../../rollout/text/visible";
import { sorted } from "../../ui/Table";

export const COLUMNS: Column<Run>[] = [
  { key: "name", label: "Run", sortBy: (run) => run.name, render: (run) => <Name run={run} /> },
  { key: "state", label: "State", sortBy: (run) => run.state, render: (run) => <State run={run} /> },
  {
    key: "scored",
    label: "Rollouts",
    hint: "Scored, failed and unresolved ones",
    sortBy: (run) => run.scored,
    render: (run) => <Counts run={run} />,
  },
  {
    key: "reward",
    label: "Mean reward",
    isNumber: true,
    sortBy: (run) => run.mean_reward,
    render: (run) => mean(run.mean_reward),
  },
  {
    key: "pass",
    label: "pass@k",
    hint: "The chance that at least one of k repeats solves a task",
    isNumber: true,
    sortBy: (run) => bestPass(run)?.value ?? null,
    render: (run) => <Pass run={run} />,
  },
  {
    key: "model",
    label: "Model",
    sortBy: (run) => run.model,
    render: (run) => <span title={run.model ?? ""}>{visible(run.model ?? "–")}</span>,
  },
  {
    key: "seconds",
    label: "Duration",
    isNumber: true,
    sortBy: (run) => run.seconds,
    render: (run) => seconds(run.seconds),
  },
  {
    key: "started",
    label: "Started",
    sortBy: (run) => run.started_at,
    render: (run) => <time dateTime={run.started_at ?? ""}>{dateTime(run.started_at)}</time>,
  },
];

export function inOrder(runs: Run[], order: { key: string; isDescending: boolean }): Run[] {
  return sorted(runs, COLUMNS, order);
}

/** The folder of a run's name, and the rest. */
export function folderOf(run: Run): { folder: string; file: string } {
  const cut = run.name.lastIndexOf("/");
  return { folder: cut < 0 ? "" : run.name.slice(0, cut), file: run.name.slice(cut + 1) };
}

function Name({ run }: { run: Run }) {
  return (
    <>
      <a class="run-name" href={href({ page: "overview", run: run.id }, {}, new URLSearchParams())} title={run.path}>
        {visible(folderOf(run).file)}
      </a>
      {run.agents.length > 0 && <span class="run-agents dim cut">{visible(run.agents.join(", "))}</span>}
    </>
  );
}

function State({ run }: { run: Run }) {
  const { bytes: read, of } = run.indexed;
  return (
    <>
      <StateChip run={run} />
      {read < of && (
        <div>
          <Progress value={read} of={of} label={`Reading ${percent(read / of)} of ${bytes(of)}`} />
        </div>
      )}
    </>
  );
}

function Counts({ run }: { run: Run }) {
  const { scored, failed, unresolved, planned } = run;
  const segments: Segment[] = [
    { label: "scored", value: scored, tone: "scored" },
    { label: "failed", value: failed, tone: "failed" },
    { label: "unresolved", value: unresolved ?? 0, tone: "unresolved" },
  ];
  return (
    <div class="run-counts">
      <Bar segments={segments} {...(planned === null ? {} : { total: planned })} />
      <span class="run-counts-text">
        {count(scored)}
        {planned !== null && <span class="dim"> of {count(planned)}</span>}
        {failed > 0 && <span class="outcome-failed">, {count(failed)} failed</span>}
        {unresolved !== null && unresolved > 0 && <span class="dim">, {count(unresolved)} unresolved</span>}
      </span>
    </div>
  );
}

/** pass@k of the largest k. */
function bestPass(run: Run): { k: number; value: number } | null {
  const all = Object.entries(run.pass_at ?? {}).map(([k, value]) => ({ k: Number(k), value }));
  return all.sort((a, b) => b.k - a.k)[0] ?? null;
}

function Pass({ run }: { run: Run }) {
  const best = bestPass(run);
  if (!best) return <>–</>;
  const all = Object.entries(run.pass_at ?? {}).map(([k, value]) => `pass@${k} ${percent(value)}`);
  return (
    <span title={all.join("\n")}>
      {percent(best.value)} <span class="dim">@{best.k}</span>
    </span>
  );
}
