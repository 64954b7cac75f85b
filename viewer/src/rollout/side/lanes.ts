/** Where the calls of a time line are drawn. */

import type { Span } from "../../api";

export interface Bar {
  span: Span;
  index: number;
  /** Calls that overlap are drawn below each other. */
  row: number;
}

export interface Lane {
  tier: Span["tier"];
  bars: Bar[];
  rows: number;
}

export interface TimeWindow {
  from: number;
  to: number;
}

const TIERS: Span["tier"][] = ["agent", "model", "environment", "judge"];
const MOST_ROWS = 8;

export function lanesOf(spans: readonly Span[]): Lane[] {
  return TIERS.map((tier) => laneOf(tier, spans)).filter((lane) => lane.bars.length > 0);
}

function laneOf(tier: Span["tier"], spans: readonly Span[]): Lane {
  const indexed = spans.map((span, index) => ({ span, index })).filter(({ span }) => span.tier === tier);
  indexed.sort((a, b) => a.span.start_ms - b.span.start_ms);
  const ends: number[] = [];
  const bars = indexed.map(({ span, index }) => {
    let row = ends.findIndex((end) => end <= span.start_ms);
    if (row < 0) row = Math.min(ends.length, MOST_ROWS - 1);
    ends[row] = Math.max(ends[row] ?? 0, span.start_ms + span.duration_ms);
    return { span, index, row };
  });
  return { tier, bars, rows: Math.max(1, ends.length) };
}

export function turnsOf(spans: readonly Span[]): number[] {
  return [...new Set(spans.flatMap((span) => (span.turn === null ? [] : [span.turn])))].sort((a, b) => a - b);
}

/** The times of a turn, or of everything, with a little room around them. */
export function windowOf(spans: readonly Span[], turn: number | null): TimeWindow {
  let from = Infinity;
  let to = -Infinity;
  for (const span of spans) {
    if (turn !== null && span.turn !== turn) continue;
    from = Math.min(from, span.start_ms);
    to = Math.max(to, span.start_ms + span.duration_ms);
  }
  if (!(to > from)) return { from: Number.isFinite(from) ? from : 0, to: (Number.isFinite(from) ? from : 0) + 1 };
  const room = (to - from) * 0.01;
  return { from: Math.max(0, from - room), to: to + room };
}

/** About five round times. */
export function ticksOf({ from, to }: TimeWindow): number[] {
  const rough = (to - from) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const ticks: number[] = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to - (to - from) * 0.06; tick += step) ticks.push(tick);
  return ticks;
}

/** The index after a key, or null if the key does not select. */
export function stepOf(key: string, index: number | null, count: number): number | null {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const by = key === "ArrowRight" || key === "ArrowDown" ? 1 : key === "ArrowLeft" || key === "ArrowUp" ? -1 : 0;
  if (by === 0) return null;
  return index === null ? 0 : Math.max(0, Math.min(count - 1, index + by));
}
