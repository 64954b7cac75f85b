/** The tools of a run: which are called, which of them fail, and how long they take. */

import type { Filter, Tools } from "../api";
import { isChanging, useCurrentRun, useEvery, useLoaded } from "../data";
import { visible } from "../rollout/text/visible";
import { useSource } from "../source";
import { href, hrefWithFilter, useFilter } from "../state";
import { Bar, Empty, ErrorNote, Spinner, Table } from "../ui";
import type { Column } from "../ui";
import { amount, count, percent, seconds } from "../ui/format";
import "./tools.css";

/** Seconds between two loads while the run goes on. */
const REFRESH_S = 3;

type Row = Tools["rows"][number];

export default function ToolsPage({ run }: { run: string }) {
  const source = useSource();
  const [filter] = useFilter();
  const current = useCurrentRun().data;
  const loaded = useLoaded(JSON.stringify([run, filter]), (signal) => source.tools(run, filter, signal));
  useEvery(source.isLive && current !== null && isChanging(current) ? REFRESH_S : null, () => {
    if (!loaded.isLoading) loaded.reload();
  });
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null) return <Spinner label="Loading the tools" />;
  const { rows } = loaded.data;
  const [calls, failed] = [sumOf(rows, "calls"), sumOf(rows, "failed")];
  return (
    <div class={loaded.isLoading ? "is-stale" : ""} aria-busy={loaded.isLoading}>
      <h1>{amount(rows.length, "tool")}</h1>
      <p class="dim">
        {amount(calls, "call")}, {count(failed)} of them failed{failed > 0 && ` (${percent(failed / calls)})`}. A call
        fails if the environment rejects it, or if its result is an error.
      </p>
      {rows.length === 0 ? (
        <Empty title="No tool was called" />
      ) : (
        <Table caption="Tools" columns={columnsOf(run, filter, rows)} rows={rows} keyOf={(row) => row.name} />
      )}
    </div>
  );
}

function sumOf(rows: Row[], name: "calls" | "failed"): number {
  return rows.reduce((sum, row) => sum + row[name], 0);
}

function columnsOf(run: string, filter: Filter, rows: Row[]): Column<Row>[] {
  const rollouts = { page: "rollouts", run } as const;
  return [
    {
      key: "name",
      label: "Tool",
      sortBy: (row) => row.name,
      render: (row) => <bdi class="mono tools-name">{visible(row.name)}</bdi>,
    },
    { key: "calls", label: "Calls", isNumber: true, sortBy: (row) => row.calls, render: (row) => count(row.calls) },
    { key: "failed", label: "Failed", isNumber: true, sortBy: (row) => row.failed, render: (row) => count(row.failed) },
    {
      key: "share",
      label: "Share failed",
      isNumber: true,
      sortBy: (row) => row.failed / row.calls,
      render: (row) => (
        <span class="tools-share">
          <Bar total={row.calls} segments={[{ label: "failed calls", value: row.failed, tone: "failed" }]} />
          {percent(row.failed / row.calls)}
        </span>
      ),
    },
    {
      key: "rollouts",
      label: "Rollouts",
      hint: "Rollouts that called the tool",
      isNumber: true,
      sortBy: (row) => row.rollouts,
      render: (row) => (
        <a href={hrefWithFilter(rollouts, { ...filter, tool: [row.name] })}>{count(row.rollouts)}</a>
      ),
    },
    {
      key: "failing",
      label: "With a failure",
      hint: "Rollouts in which a call of the tool failed",
      isNumber: true,
      sortBy: (row) => row.failing,
      render: (row) =>
        row.failing > 0 ? (
          <a href={hrefWithFilter(rollouts, { ...filter, tool: [row.name], tool_failed: true })}>{count(row.failing)}</a>
        ) : (
          "0"
        ),
    },
    ...(rows.some((row) => row.timed > 0)
      ? [
          {
            key: "p95",
            label: "p95 duration",
            hint: "95% of the recorded calls took at most this long",
            isNumber: true,
            sortBy: (row: Row) => row.p95_s,
            render: (row: Row) => seconds(row.p95_s),
          },
        ]
      : []),
    {
      key: "example",
      label: "First example",
      render: ({ example: { task, repeat }, failed }) => (
        <a class="tools-example" href={href({ page: "rollout", run, task, repeat })}>
          task {task}, repeat {repeat}
          {failed > 0 && " (failed)"}
        </a>
      ),
    },
  ];
}
