/** Failures by cause and server, with a message of each and links to the rollouts. */
import type { Filter, Overview } from "../api";
import { href, hrefWithFilter } from "../state";
import { count, MISSING } from "../ui/format";
import { Table } from "../ui/Table";
import type { Column } from "../ui/Table";

type Failure = Overview["failures"][number];

interface Props {
  run: string;
  failures: Failure[];
  filter: Filter;
}

export function Failures({ run, failures, filter }: Props) {
  const columns: Column<Failure>[] = [
    { key: "cause", label: "Cause", sortBy: (row) => row.cause, render: (row) => <span class="mono">{row.cause}</span> },
    {
      key: "server",
      label: "Server",
      sortBy: (row) => row.server,
      render: (row) => <>{row.server ?? MISSING} {row.tier && <span class="dim">{row.tier}</span>}</>,
    },
    {
      key: "count",
      label: "Rollouts",
      isNumber: true,
      sortBy: (row) => row.count,
      render: (row) => <a href={hrefWithFilter({ page: "rollouts", run }, narrowed(filter, row))}>{count(row.count)}</a>,
    },
    { key: "example", label: "Example", render: (row) => <Example run={run} example={row.example} /> },
  ];
  const keyOf = (row: Failure) => JSON.stringify([row.cause, row.tier, row.server]);
  return <Table caption="Failures by cause and server" columns={columns} rows={failures} keyOf={keyOf} />;
}

function Example({ run, example }: { run: string; example: Failure["example"] }) {
  const { task, repeat, message } = example;
  return (
    <div class="failure-example">
      <p dir="auto">{message || "The record has no message."}</p>
      <a href={href({ page: "rollout", run, task, repeat })}>task {task}, repeat {repeat}</a>
    </div>
  );
}

function narrowed(filter: Filter, failure: Failure): Filter {
  return {
    ...filter,
    outcome: ["failed"],
    failure: [failure.cause],
    ...(failure.tier ? { tier: [failure.tier] } : {}),
    ...(failure.server ? { server: [failure.server] } : {}),
  };
}
