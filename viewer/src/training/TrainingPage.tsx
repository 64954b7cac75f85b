/** The course of a training: curves over the policy's versions, and the tasks that stopped teaching. */

import type { Filter, Measure, Over, Training } from "../api";
import { isChanging, useCurrentRun, useEvery, useLoaded } from "../data";
import { Plot } from "../overview/Plot";
import type { Line } from "../overview/Plot";
import { visible } from "../rollout/text/visible";
import { useSource } from "../source";
import { hrefWithFilter, useFilter, useParameter } from "../state";
import { Button, Card, Empty, ErrorNote, Spinner, Table } from "../ui";
import type { Column } from "../ui";
import { amount, compact, count, mean, MISSING, number, percent } from "../ui/format";
import { TaskMap } from "./TaskMap";
import "./training.css";

/** Seconds between two loads while the run goes on. */
const REFRESH_S = 3;
const COLORS = 6;
const MEASURES: { name: Measure; title: string; format: (value: number) => string }[] = [
  { name: "reward", title: "Mean reward", format: mean },
  { name: "mixed", title: "Groups with different rewards", format: percent },
  { name: "output_tokens", title: "Length, in sampled tokens", format: compact },
  { name: "failed", title: "Failed rollouts", format: percent },
  { name: "staleness", title: "Staleness, in versions", format: number },
  { name: "log_prob", title: "Mean log-probability of the tokens", format: number },
];

export default function TrainingPage({ run }: { run: string }) {
  const source = useSource();
  const [filter] = useFilter();
  const [given, setOver] = useParameter("over");
  const over: Over = given === "step" ? "step" : "version";
  const current = useCurrentRun().data;
  const loaded = useLoaded(JSON.stringify([run, over, filter]), (signal) => source.training(run, over, filter, signal));
  useEvery(source.isLive && current !== null && isChanging(current) ? REFRESH_S : null, () => {
    if (!loaded.isLoading) loaded.reload();
  });
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null) return <Spinner label="Loading the training" />;
  const { points, has_steps } = loaded.data;
  return (
    <div class={loaded.isLoading ? "training is-stale" : "training"} aria-busy={loaded.isLoading}>
      <header class="training-head">
        <h1>{amount(points.length, over)}</h1>
        {has_steps && (
          <div role="group" aria-label="Horizontal axis">
            <Button pressed={over === "version"} onClick={() => setOver(null)}>Version of the policy</Button>{" "}
            <Button pressed={over === "step"} onClick={() => setOver("step")}>Training step</Button>
          </div>
        )}
      </header>
      {points.length === 0 ? (
        <Empty title={over === "step" ? "No rollout ended before a noted step" : "No rollout has a policy version"}>
          <p>A training that is recorded with <code>TrainingClient(record=…)</code> has them.</p>
        </Empty>
      ) : (
        <Content run={run} training={loaded.data} over={over} filter={filter} />
      )}
    </div>
  );
}

function Content({ run, training, over, filter }: { run: string; training: Training; over: Over; filter: Filter }) {
  const { curves, points, noted } = training;
  return (
    <>
      <div class="training-curves">
        {MEASURES.map(({ name, title, format }) => {
          if (curves.every((curve) => curve[name].every((value) => value === null))) return null;
          const lines = curves.map((curve, at) => lineOf(visible(curve.agent ?? "all"), curve[name], at, format));
          return (
            <Card key={name} title={title}>
              <Curves title={title} x={points} lines={lines} over={over} />
            </Card>
          );
        })}
        {noted.map(({ name, at, values }) => (
          <Card key={name} title={`${visible(name)}, noted by the trainer`}>
            <Curves title={name} x={at} lines={[lineOf(visible(name), values, 0, number)]} over={over} />
          </Card>
        ))}
      </div>
      <Teaching run={run} training={training} over={over} filter={filter} />
    </>
  );
}

function lineOf(label: string, values: (number | null)[], at: number, format: Line["format"]): Line {
  return { label, values, color: `--series-${(at % COLORS) + 1}`, format };
}

/** The text has the first and the last values, for those who do not see the chart. */
function Curves({ title, x, lines, over }: { title: string; x: number[]; lines: Line[]; over: Over }) {
  const moved = lines.map(({ label, values, format }) => {
    const known = values.flatMap((value) => value ?? []);
    const [first, last] = [known[0], known.at(-1)];
    return `${label}: ${first === undefined ? MISSING : format(first)} to ${last === undefined ? MISSING : format(last)}`;
  });
  return (
    <>
      <Plot label={`${title} by ${over}. ${moved.join(". ")}.`} x={x} lines={lines} formatX={count} nameX={over} steps={null} />
      <p class="hidden">{moved.join(". ")}</p>
    </>
  );
}

type Row = Training["rows"][number];

function Teaching({ run, training, over, filter }: { run: string; training: Training; over: Over; filter: Filter }) {
  const { counts, rows } = training;
  const words = { teaching: "still teach", stopped: "stopped teaching", flat: "never taught" } as const;
  return (
    <Card title="Tasks that teach">
      <p>
        A task teaches as long as the rewards of its group differ.{" "}
        {rows.length > 0 && (
          <>
            {(["stopped", "teaching", "flat"] as const).map((name, at) => (
              <>
                {at > 0 && ", "}
                <strong>{count(counts[name])}</strong> {words[name]}
              </>
            ))}
            .{" "}
          </>
        )}
        {counts.once > 0 && `${amount(counts.once, "task")} ${counts.once === 1 ? "was" : "were"} sampled at one ${over} only, and left out.`}
      </p>
      {rows.length > 0 && (
        <>
          <TaskMap training={training} over={over} hrefOf={(row) => hrefOf(run, filter, row)} />
          <Table
            caption="Tasks in the order in which they stopped teaching"
            columns={columnsOf(run, over, filter)}
            rows={rows}
            keyOf={(row) => String(row.tasks[0])}
          />
        </>
      )}
    </Card>
  );
}

function hrefOf(run: string, filter: Filter, row: Row): string {
  return hrefWithFilter({ page: "rollouts", run }, { ...filter, task: row.tasks });
}

function columnsOf(run: string, over: Over, filter: Filter): Column<Row>[] {
  return [
    {
      key: "task",
      label: "Task",
      render: (row) => (
        <a href={hrefOf(run, filter, row)}>
          <bdi class="training-title">{visible(row.title) || `task ${row.tasks[0]}`}</bdi>
          {row.count > 1 && ` and ${row.count - 1} more`}
        </a>
      ),
    },
    {
      key: "until",
      label: `Taught until ${over}`,
      isNumber: true,
      sortBy: (row) => row.taught_until,
      render: (row) => (row.taught_until === null ? "never" : count(row.taught_until)),
    },
    { key: "now", label: "Latest group", render: (row) => latestOf(row) },
  ];
}

function latestOf({ cells }: Row): string {
  const [never, mixed, always] = [...cells].reverse().find((cell) => cell !== null) ?? [0, 0, 0];
  if (mixed > 0) return "different rewards";
  return never > 0 && always > 0 ? "never or always solved" : always > 0 ? "always solved" : "never solved";
}
