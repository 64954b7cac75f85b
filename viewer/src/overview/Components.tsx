/** The parts of the reward, each with its mean between its smallest and largest value. */
import type { Overview } from "../api";
import { count, mean, number } from "../ui/format";
import { Table } from "../ui/Table";
import type { Column } from "../ui/Table";

type Component = Overview["components"][number];

export function Components({ components }: { components: Component[] }) {
  const low = Math.min(0, ...components.map((each) => each.min));
  const high = Math.max(1, ...components.map((each) => each.max));
  const columns: Column<Component>[] = [
    { key: "name", label: "Component", sortBy: (row) => row.name, render: (row) => <span class="mono">{row.name}</span> },
    { key: "agent", label: "Agent", sortBy: (row) => row.agent, render: (row) => row.agent },
    { key: "range", label: `${number(low)} to ${number(high)}`, render: (row) => <Range of={row} low={low} high={high} /> },
    { key: "mean", label: "Mean", isNumber: true, sortBy: (row) => row.mean, render: (row) => <strong>{mean(row.mean)}</strong> },
    { key: "min", label: "Min", isNumber: true, sortBy: (row) => row.min, render: (row) => number(row.min) },
    { key: "max", label: "Max", isNumber: true, sortBy: (row) => row.max, render: (row) => number(row.max) },
    { key: "count", label: "Rollouts", isNumber: true, sortBy: (row) => row.count, render: (row) => count(row.count) },
  ];
  return (
    <Table
      caption="Reward components by agent"
      columns={columns}
      rows={components}
      keyOf={(row) => JSON.stringify([row.agent, row.name])}
    />
  );
}

function Range({ of, low, high }: { of: Component; low: number; high: number }) {
  const share = (value: number) => (100 * (value - low)) / (high - low);
  return (
    <span class="component-bar" aria-hidden="true">
      <span class="component-range" style={{ left: `${share(of.min)}%`, width: `${share(of.max) - share(of.min)}%` }} />
      <span class="component-mean" style={{ left: `${share(of.mean)}%` }} />
    </span>
  );
}
