/** All metrics of a run with their meaning: the key ones first, and all of them on request or by search. */
import { useState } from "preact/hooks";
import type { Overview } from "../api";
import { count, plain } from "../ui/format";
import { Table } from "../ui/Table";
import type { Column } from "../ui/Table";

type Metric = Overview["metrics"][number];

const MOST_SHOWN = 300;

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

export function Metrics({ metrics }: { metrics: Metric[] }) {
  const [words, setWords] = useState("");
  const [isWhole, setIsWhole] = useState(false);
  const hasAgents = new Set(metrics.map((each) => each.agent)).size > 1;
  const hasKeys = metrics.some((each) => each.is_key);
  const chosen = words
    ? metrics.filter((each) => isFound(each, words))
    : metrics.filter((each) => isWhole || !hasKeys || each.is_key);
  const rows = [...chosen].sort((a, b) => Number(b.is_key) - Number(a.is_key)).slice(0, MOST_SHOWN);
  return (
    <>
      <div class="metrics-tools">
        <input
          class="field"
          type="search"
          placeholder="Search metrics and meanings"
          aria-label="Search metrics and meanings"
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        {hasKeys && (
          <label>
            <input type="checkbox" checked={isWhole} onChange={() => setIsWhole(!isWhole)} /> All {count(metrics.length)}
          </label>
        )}
      </div>
      <div class="metrics-table">
        <Table caption="Metrics and their meaning" columns={hasAgents ? [...COLUMNS, AGENT] : COLUMNS} rows={rows} keyOf={keyOf} />
      </div>
      <p class="dim" role="status">
        {chosen.length === 0 && "No metric contains these words."}
        {chosen.length > MOST_SHOWN && `The first ${MOST_SHOWN} of ${count(chosen.length)} metrics are shown. Search for the others.`}
      </p>
    </>
  );
}

function keyOf({ agent, name }: Metric): string {
  return JSON.stringify([agent, name]);
}

function isFound(metric: Metric, words: string): boolean {
  const text = `${metric.name} ${metric.agent ?? ""} ${metric.meaning ?? ""}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
