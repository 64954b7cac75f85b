/** The metrics of a run with their meaning: the key ones first, and all of them on request or by search. */
import { useState } from "preact/hooks";
import type { Metrics as Loaded } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { Card } from "../ui/Card";
import { count, plain } from "../ui/format";
import { ErrorNote } from "../ui/notes";
import { Table } from "../ui/Table";
import type { Column } from "../ui/Table";

type Metric = Loaded["rows"][number];

const COLUMNS: Column<Metric>[] = [
  {
    key: "name",
    label: "Metric",
    sortBy: (row) => row.name,
    render: (row) => <span class={row.is_key ? "mono is-key" : "mono"}>{row.name}</span>,
  },
  {
    key: "value",
    label: "Value",
    isNumber: true,
    sortBy: (row) => (typeof row.value === "number" ? row.value : null),
    render: (row) => plain(row.value),
  },
  { key: "meaning", label: "Meaning", render: (row) => <span class="metric-meaning">{row.meaning}</span> },
];

const AGENT: Column<Metric> = {
  key: "agent",
  label: "Agent",
  sortBy: (row) => row.agent,
  render: (row) => <span class="dim">{row.agent}</span>,
};

export function Metrics({ run, title }: { run: string; title: string }) {
  const source = useSource();
  const [words, setWords] = useState("");
  const [isWhole, setIsWhole] = useState(false);
  const loaded = useLoaded(JSON.stringify([run, words, isWhole]), (signal) => source.metrics(run, words, isWhole, signal));
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null || loaded.data.of === 0) return null;
  const { of, total, has_keys, rows } = loaded.data;
  const hasAgents = new Set(rows.map((each) => each.agent)).size > 1;
  return (
    <Card title={title}>
      <div class="metrics-tools">
        <input
          class="field"
          type="search"
          placeholder="Search metrics and meanings"
          aria-label="Search metrics and meanings"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        {has_keys && (
          <label>
            <input type="checkbox" checked={isWhole} onChange={() => setIsWhole(!isWhole)} /> All {count(of)}
          </label>
        )}
      </div>
      <div class="metrics-table">
        <Table caption="Metrics and their meaning" columns={hasAgents ? [...COLUMNS, AGENT] : COLUMNS} rows={rows} keyOf={keyOf} />
      </div>
      <p class="dim" role="status">
        {total === 0 && "No metric contains these words."}
        {total > rows.length && `The first ${count(rows.length)} of ${count(total)} metrics are shown. Search for the others.`}
      </p>
    </Card>
  );
}

function keyOf({ agent, name }: Metric): string {
  return JSON.stringify([agent, name]);
}
