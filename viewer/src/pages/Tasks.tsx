/** The tasks of a run: how often each was solved, and which of them carry a training signal. */

import type { TaskKind, TaskRow, TaskSort, TasksPage } from "../api";
import { isChanging, useCurrentRun, useEvery, useLoaded } from "../data";
import { useSource } from "../source";
import { changeQuery, href, numberOf, useFilter, useRoute } from "../state";
import { Button, Empty, ErrorNote, Reward, Spinner, Table } from "../ui";
import type { Column } from "../ui";
import { amount, compact, count, mean, number, seconds } from "../ui/format";
import { visible } from "../rollout/text/visible";
import "./tasks.css";

/** Seconds between two loads while the run goes on. */
const REFRESH_S = 3;
const PAGE = 100;
const KINDS: { kind: TaskKind; label: string; hint: string }[] = [
  { kind: "never", label: "Never solved", hint: "All rewards are equal, and below 1" },
  { kind: "mixed", label: "Mixed", hint: "The rewards differ, so that training learns from the task" },
  { kind: "always", label: "Always solved", hint: "All rewards are equal, and 1 or more" },
];
const SORTS: readonly string[] = [
  "task", "scored", "solved", "mean", "std", "output_tokens", "seconds", "failed",
] satisfies TaskSort[];

export default function Tasks({ run }: { run: string }) {
  const source = useSource();
  const [filter] = useFilter();
  const { kind, sort, isDescending, offset } = choiceOf(useRoute().query);
  const order = isDescending ? "desc" : "asc";
  const current = useCurrentRun().data;
  const key = JSON.stringify([run, filter, kind, sort, order, offset]);
  const loaded = useLoaded(key, (signal) => source.tasks(run, filter, kind, sort, order, offset, signal));
  useEvery(source.isLive && current !== null && isChanging(current) ? REFRESH_S : null, () => {
    if (!loaded.isLoading) loaded.reload();
  });
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null) return <Spinner label="Loading the tasks" />;
  const { counts, rows } = loaded.data;
  return (
    <div class={loaded.isLoading ? "tasks is-stale" : "tasks"} aria-busy={loaded.isLoading}>
      <header class="tasks-head">
        <h1>{amount(counts.all, "task")}</h1>
        <Kinds counts={counts} chosen={kind} />
      </header>
      <p class="dim">
        Only the {amount(counts.mixed, "mixed task")} {counts.mixed === 1 ? "carries" : "carry"} a training signal: equal
        rewards teach nothing.
      </p>
      {rows.length === 0 ? (
        <Empty title={kind === null ? "No task matches the filter" : "No task is of this kind"} />
      ) : (
        <Table
          caption="Tasks"
          columns={columnsOf(run)}
          rows={rows}
          keyOf={(row) => String(row.task)}
          sort={{ key: sort, isDescending }}
          onSort={(next) => set("by", `${next.isDescending ? "-" : ""}${next.key}`)}
        />
      )}
      <Pager offset={offset} total={kind === null ? counts.all : counts[kind]} />
    </div>
  );
}

interface Choice {
  kind: TaskKind | null;
  sort: TaskSort;
  isDescending: boolean;
  offset: number;
}

/** The part of the table that an address names. */
function choiceOf(query: URLSearchParams): Choice {
  const by = query.get("by") ?? "task";
  const name = by.replace(/^-/, "");
  const kind = KINDS.find((each) => each.kind === query.get("kind"))?.kind ?? null;
  const sort = SORTS.includes(name) ? (name as TaskSort) : "task";
  return { kind, sort, isDescending: by.startsWith("-"), offset: numberOf(query.get("from")) ?? 0 };
}

/** Change a parameter of the table, and begin with its first page. */
function set(name: "kind" | "by", value: string | null): void {
  changeQuery((query) => {
    query.delete("from");
    if (value === null) query.delete(name);
    else query.set(name, value);
  });
}

function Kinds({ counts, chosen }: { counts: TasksPage["counts"]; chosen: TaskKind | null }) {
  return (
    <div class="tasks-kinds" role="group" aria-label="Kinds of tasks">
      {KINDS.map(({ kind, label, hint }) => (
        <Button key={kind} pressed={kind === chosen} hint={hint} onClick={() => set("kind", kind === chosen ? null : kind)}>
          {label} <strong>{count(counts[kind])}</strong>
        </Button>
      ))}
    </div>
  );
}

function Pager({ offset, total }: { offset: number; total: number }) {
  if (total <= PAGE) return null;
  const go = (to: number) => changeQuery((query) => query.set("from", String(to)), true);
  return (
    <nav class="tasks-pager" aria-label="Pages of tasks">
      <Button disabled={offset === 0} onClick={() => go(Math.max(0, offset - PAGE))}>
        Previous
      </Button>
      <span role="status">
        {count(offset + 1)} to {count(Math.min(offset + PAGE, total))} of {count(total)}
      </span>
      <Button disabled={offset + PAGE >= total} onClick={() => go(offset + PAGE)}>
        Next
      </Button>
    </nav>
  );
}

function columnsOf(run: string): Column<TaskRow>[] {
  return [
    {
      key: "task",
      label: "Task",
      sortBy: (row) => row.task,
      render: (row) => <a href={href({ page: "task", run, task: row.task })}>{row.task}</a>,
    },
    {
      key: "solved",
      label: "Solved",
      hint: "Rewards of 1 or more, of all rewards",
      isNumber: true,
      sortBy: (row) => row.solved,
      render: (row) => `${count(row.solved)} of ${count(row.scored)}`,
    },
    {
      key: "mean",
      label: "Mean reward",
      isNumber: true,
      sortBy: (row) => row.mean,
      render: (row) => <Reward value={row.mean} show={mean} />,
    },
    {
      key: "std",
      label: "Std",
      hint: "The standard deviation of the rewards",
      isNumber: true,
      sortBy: (row) => row.std,
      render: (row) => number(row.std),
    },
    {
      key: "output_tokens",
      label: "Tokens out",
      hint: "The mean over the rollouts",
      isNumber: true,
      sortBy: (row) => row.output_tokens,
      render: (row) => compact(row.output_tokens),
    },
    {
      key: "seconds",
      label: "Duration",
      hint: "The mean over the rollouts",
      isNumber: true,
      sortBy: (row) => row.seconds,
      render: (row) => seconds(row.seconds),
    },
    {
      key: "failed",
      label: "Failed",
      hint: "Rollouts without a reward because something failed",
      isNumber: true,
      sortBy: (row) => row.failed,
      render: (row) => count(row.failed),
    },
    { key: "title", label: "Prompt", render: (row) => <bdi class="tasks-title">{visible(row.title)}</bdi> },
  ];
}
