/** The mean reward for each value of a field, such as the subset of the data: where does the model fail? */

import type { Facets, Filter, Groups } from "../api";
import { useFacets, useLoaded } from "../data";
import { useSource } from "../source";
import { hrefWithFilter, useParameter } from "../state";
import { Card, ErrorNote, Spinner, Table } from "../ui";
import type { Column } from "../ui";
import { count, mean, number } from "../ui/format";
import { visible } from "../rollout/text/visible";

/** A longer table is cut, with the largest groups first. */
const MOST_VALUES = 200;

type Field = Facets["fields"][number];

type Row = Groups["rows"][number];

export function ByField({ run, filter }: { run: string; filter: Filter }) {
  const facets = useFacets(run);
  const [name, setName] = useParameter("by");
  const fields = facets.data?.fields.filter(({ values }) => values.length > 1) ?? [];
  if (fields.length === 0) return null;
  const field = fields.find((each) => each.name === name);
  const choice = (
    <select
      class="field"
      aria-label="Field"
      value={field?.name ?? ""}
      onChange={(event) => setName(event.currentTarget.value || null)}
    >
      <option value="">Choose a field</option>
      {fields.map((each) => (
        <option key={each.name} value={each.name}>
          {visible(each.name)}
        </option>
      ))}
    </select>
  );
  return (
    <Card title="Mean reward by field" actions={choice}>
      {field ? (
        <Values run={run} filter={filter} field={field} />
      ) : (
        <p class="dim">Choose a field of the rows, such as a subset or a level, to see where rewards are low.</p>
      )}
    </Card>
  );
}

function Values({ run, filter, field }: { run: string; filter: Filter; field: Field }) {
  const source = useSource();
  const key = JSON.stringify([run, filter, field.name]);
  const loaded = useLoaded(key, (signal) => source.groups(run, field.name, filter, signal));
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null || loaded.isLoading) return <Spinner label="Loading the rewards of each value" />;
  const largest = [...loaded.data.rows].sort((a, b) => b.rollouts - a.rollouts).slice(0, MOST_VALUES);
  const rows = loaded.data.rows
    .filter((row) => largest.includes(row) && row.scored + row.failed > 0)
    .sort((a, b) => (field.kind === "number" ? 0 : (a.mean ?? Infinity) - (b.mean ?? Infinity)));
  return (
    <>
      <Table
        caption={`Mean reward by ${field.name}`}
        columns={columnsOf(run, filter, field, rows)}
        rows={rows}
        keyOf={(row) => row.value}
      />
      {loaded.data.total > MOST_VALUES && (
        <p class="dim">The {MOST_VALUES} most frequent of {count(loaded.data.total)} values.</p>
      )}
    </>
  );
}

/** The filter with this value of a field instead of others. */
function withField(filter: Filter, name: string, value: string): Filter {
  const others = filter.field?.filter((each) => !each.startsWith(`${name}=`)) ?? [];
  return { ...filter, field: [...others, `${name}=${value}`] };
}

function columnsOf(run: string, filter: Filter, field: Field, rows: Row[]): Column<Row>[] {
  const means = rows.flatMap((row) => row.mean ?? []);
  const [low, high] = [Math.min(0, ...means), Math.max(1, ...means)];
  const share = (value: number) => `${(100 * (value - low)) / (high - low)}%`;
  return [
    {
      key: "value",
      label: field.name,
      sortBy: (row) => (field.kind === "number" ? Number(row.value) : row.value),
      render: (row) => <a href={hrefWithFilter({ page: "rollouts", run }, withField(filter, field.name, row.value))}>{visible(row.value)}</a>,
    },
    {
      key: "mean",
      label: "Mean reward",
      isNumber: true,
      sortBy: (row) => row.mean,
      render: (row) => <strong>{mean(row.mean)}</strong>,
    },
    {
      key: "plot",
      label: `${number(low)} to ${number(high)}`,
      render: (row) =>
        row.mean !== null && (
          <span class="component-bar" aria-hidden="true">
            <span
              class="component-range"
              style={{ left: share(Math.min(0, row.mean)), right: `calc(100% - ${share(Math.max(0, row.mean))})` }}
            />
            <span class="component-mean" style={{ left: share(row.mean) }} />
          </span>
        ),
    },
    {
      key: "scored",
      label: "Scored",
      isNumber: true,
      sortBy: (row) => row.scored,
      render: (row) => count(row.scored),
    },
    {
      key: "failed",
      label: "Failed",
      isNumber: true,
      sortBy: (row) => row.failed,
      render: (row) => count(row.failed),
    },
  ];
}
