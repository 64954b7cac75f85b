/** The calls of a rollout on one lane per tier, zoomable to a turn. */

import { useId, useMemo, useState } from "preact/hooks";
import type { Span } from "../../api";
import { Empty, Table } from "../../ui";
import type { Column } from "../../ui";
import { seconds } from "../../ui/format";
import { visible } from "../text/visible";
import { lanesOf, stepOf, ticksOf, turnsOf, windowOf } from "./lanes";
import type { Lane, TimeWindow } from "./lanes";
import "./timeline.css";

export function Timeline({ spans }: { spans: readonly Span[] }) {
  const [turn, setTurn] = useState<number | null>(null);
  const [active, setActive] = useState<number | null>(null);
  const id = useId();
  const lanes = useMemo(() => lanesOf(spans), [spans]);
  const turns = useMemo(() => turnsOf(spans), [spans]);
  if (spans.length === 0) {
    return (
      <Empty title="No times were recorded">
        <p>
          Collect with <code>+observability_enabled=true +model_call_capture_dir=/absolute/folder</code> to record the
          time of each call.
        </p>
      </Empty>
    );
  }
  const shown = windowOf(spans, turn);
  const current = active === null ? undefined : spans[active];
  const press = (event: KeyboardEvent): void => {
    if (event.key === "Escape" && turn === null) return;
    const next = stepOf(event.key, active, spans.length);
    if (next !== null) setActive(next);
    else if (event.key === "Enter") setTurn(turn === null ? (current?.turn ?? null) : null);
    else if (event.key === "Escape") setTurn(null);
    else return;
    event.preventDefault();
  };
  return (
    <div class="timeline">
      <div class="timeline-controls">
        <label>
          Show{" "}
          <select
            class="field"
            value={turn ?? ""}
            onChange={(event) => setTurn(event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}
          >
            <option value="">the whole rollout</option>
            {turns.map((each) => (
              <option key={each} value={each}>
                turn {each}
              </option>
            ))}
          </select>
        </label>
        <span class="dim">Arrow keys select a call, Enter zooms to its turn.</span>
      </div>
      <div
        class="lanes"
        role="listbox"
        aria-label="Calls by time"
        tabIndex={0}
        aria-activedescendant={active === null ? undefined : `${id}-${active}`}
        onKeyDown={press}
      >
        {lanes.map((lane) => (
          <LaneView key={lane.tier} lane={lane} shown={shown} active={active} id={id} onSelect={setActive} />
        ))}
      </div>
      <Axis shown={shown} />
      <p class="timeline-detail">{current ? describe(current) : "Point at a call for details."}</p>
      <details>
        <summary>As a table</summary>
        <Table
          caption="Calls"
          columns={COLUMNS}
          rows={spans.map((span, index) => ({ ...span, index }))}
          keyOf={(row) => String(row.index)}
        />
      </details>
    </div>
  );
}

interface LaneProps {
  lane: Lane;
  shown: TimeWindow;
  active: number | null;
  id: string;
  onSelect(index: number): void;
}

function LaneView({ lane, shown, active, id, onSelect }: LaneProps) {
  const percent = (ms: number): number => (100 * (ms - shown.from)) / (shown.to - shown.from);
  return (
    <div class="lane" role="group" aria-label={lane.tier}>
      <span class="lane-name" aria-hidden="true">
        {lane.tier}
      </span>
      <div class="lane-track" style={{ height: `${lane.rows * 18 + 4}px` }}>
        {lane.bars.map(({ span, index, row }) => {
          const start = span.start_ms;
          const end = start + span.duration_ms;
          if (end < shown.from || start > shown.to) return null;
          const left = Math.max(0, percent(start));
          const isBad = span.status !== null && !/^(2\d\d|ok|success|completed)$/i.test(span.status);
          return (
            <span
              key={index}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === active}
              aria-label={describe(span)}
              class={`span span-${lane.tier}${isBad ? " is-bad" : ""}`}
              style={{
                left: `${left}%`,
                width: `${Math.max(0, Math.min(100, percent(end)) - left)}%`,
                top: `${row * 18 + 2}px`,
              }}
              onPointerEnter={() => onSelect(index)}
              onClick={() => onSelect(index)}
            >
              <span class="span-name">{visible(span.name)}</span>
            </span>
          );
        })}
      </div>
    </div>
  );
}

function Axis({ shown }: { shown: TimeWindow }) {
  return (
    <div class="lane axis" aria-hidden="true">
      <span class="lane-name" />
      <div class="lane-track">
        {ticksOf(shown).map((ms) => (
          <span key={ms} class="tick" style={{ left: `${(100 * (ms - shown.from)) / (shown.to - shown.from)}%` }}>
            {seconds(ms / 1000)}
          </span>
        ))}
      </div>
    </div>
  );
}

function describe(span: Span): string {
  const parts = [
    `${span.tier} ${visible(span.name)}`,
    `at ${seconds(span.start_ms / 1000)}`,
    `took ${seconds(span.duration_ms / 1000)}`,
    ...(span.turn === null ? [] : [`turn ${span.turn}`]),
    ...(span.status === null ? [] : [`status ${visible(span.status)}`]),
    ...(span.detail === null ? [] : [visible(span.detail)]),
  ];
  return parts.join(" · ");
}

const COLUMNS: Column<Span & { index: number }>[] = [
  { key: "tier", label: "tier", sortBy: (row) => row.tier, render: (row) => row.tier },
  { key: "name", label: "call", sortBy: (row) => row.name, render: (row) => visible(row.name) },
  { key: "turn", label: "turn", isNumber: true, sortBy: (row) => row.turn, render: (row) => row.turn ?? "–" },
  {
    key: "start",
    label: "start",
    isNumber: true,
    sortBy: (row) => row.start_ms,
    render: (row) => seconds(row.start_ms / 1000),
  },
  {
    key: "time",
    label: "time",
    isNumber: true,
    sortBy: (row) => row.duration_ms,
    render: (row) => seconds(row.duration_ms / 1000),
  },
  { key: "status", label: "status", sortBy: (row) => row.status, render: (row) => visible(row.status ?? "–") },
  { key: "detail", label: "detail", render: (row) => visible(row.detail ?? "") },
];
