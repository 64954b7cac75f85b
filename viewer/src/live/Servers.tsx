/** The servers of a run: what each is doing now, and how that changed in the last two minutes. */
import type { ServerLoad } from "../api";
import { Chip } from "../ui/Chip";
import { bytes, count, MISSING, number } from "../ui/format";
import { Table } from "../ui/Table";
import type { Column } from "../ui/Table";
import { Sparkline } from "./Sparkline";
import type { Sample } from "./useLive";

const SHOWN_SAMPLES = 120;
/** Event loops that are blocked for longer delay all requests of their server. */
const HIGH_LAG_MS = 100;

type Measure = "in_flight" | "queued" | "loop_lag_ms" | "cpu_percent" | "memory_mb";

interface Row extends ServerLoad {
  history: (measure: Measure) => (number | null)[];
}

const COLUMNS: Column<Row>[] = [
  {
    key: "name",
    label: "Server",
    sortBy: (row) => row.name,
    render: (row) => (
      <>
        <span class="mono">{row.name}</span> <span class="dim">{row.tier}</span>{" "}
        {row.state !== "up" && <Chip tone={row.state === "down" ? "failed" : "warn"}>{row.state}</Chip>}
        {row.problem !== null && <span class="server-problem" dir="auto">{row.problem}</span>}
      </>
    ),
  },
  measured("in_flight", "In flight", "Requests being answered", count, 1),
  measured("queued", "Queued", "Requests waiting for a slot", count, 1),
  measured("loop_lag_ms", "Loop lag", "How long the event loop was blocked", milliseconds, 20, (lag) => lag > HIGH_LAG_MS),
  measured("cpu_percent", "CPU", "100% is one core", (value) => (value === null ? MISSING : `${Math.round(value)}%`), 100),
  measured("memory_mb", "Memory", "Resident memory", (value) => bytes(value === null ? null : value * 1e6), 1),
  {
    key: "requests",
    label: "Requests/s",
    hint: "Requests answered per second",
    isNumber: true,
    sortBy: (row) => row.requests_per_s,
    render: (row) => number(row.requests_per_s && Number(row.requests_per_s.toPrecision(3))),
  },
  counted("errors", "Errors", "Answers with a status of 500 or above since the start"),
  counted("refused", "Rejected", "Requests that a full queue rejected since the start"),
];

export function Servers({ samples }: { samples: Sample[] }) {
  const recent = samples.slice(-SHOWN_SAMPLES);
  const servers = recent.at(-1)?.status.servers ?? [];
  const rows = servers.map((server): Row => {
    const loads = recent.map(({ status }) => status.servers.find(({ name }) => name === server.name));
    return { ...server, history: (measure) => loads.map((load) => load?.[measure] ?? null) };
  });
  return <Table caption="Load of the servers" columns={COLUMNS} rows={rows} keyOf={(row) => row.name} />;
}

function measured(
  key: Measure, label: string, hint: string, format: (value: number | null) => string, least: number, isHigh = (_: number) => false,
): Column<Row> {
  return {
    key,
    label,
    hint,
    isNumber: true,
    sortBy: (row) => row[key],
    render: (row) => (
      <span class={isHigh(row[key] ?? 0) ? "measured is-high" : "measured"}>
        <Sparkline values={row.history(key)} least={least} /> <span>{format(row[key])}</span>
      </span>
    ),
  };
}

function counted(key: "errors" | "refused", label: string, hint: string): Column<Row> {
  return {
    key,
    label,
    hint,
    isNumber: true,
    sortBy: (row) => row[key],
    render: (row) => <span class={row[key] ? "is-high" : ""}>{count(row[key])}</span>,
  };
}

function milliseconds(value: number | null): string {
  return value === null ? MISSING : `${value < 10 ? number(Math.round(value * 10) / 10) : count(value)} ms`;
}
