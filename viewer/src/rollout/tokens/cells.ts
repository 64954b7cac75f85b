/** Where the tokens of a sequence are drawn: rows of cells, and a heading before each segment. */

import type { Tokens } from "../../api";

export type Sequence = Tokens["sequences"][number];

/** A part of a sequence: the prompt, what a turn sampled, or what came between two turns. */
export interface Segment {
  label: string;
  start: number;
  end: number;
}

export interface Row {
  /** Null for a row of tokens. */
  heading: string | null;
  start: number;
  end: number;
}

export function segmentsOf(sequence: Sequence): Segment[] {
  const segments: Segment[] = [];
  const length = sequence.ids.length;
  let at = 0;
  const fill = (end: number): void => {
    if (at < sequence.prompt_length && at < end) {
      const stop = Math.min(sequence.prompt_length, end);
      segments.push({ label: "Prompt", start: at, end: stop });
      at = stop;
    }
    if (at < end) segments.push({ label: "Between turns, not sampled", start: at, end });
    at = Math.max(at, end);
  };
  sequence.turns.forEach((turn, index) => {
    const start = Math.max(at, Math.min(turn.start, length));
    const end = Math.max(start, Math.min(turn.end, length));
    fill(start);
    if (end > start) segments.push({ label: `Turn ${index + 1}, sampled`, start, end });
    at = end;
  });
  fill(length);
  return segments;
}

export function rowsOf(sequence: Sequence, columns: number): Row[] {
  const rows: Row[] = [];
  for (const { label, start, end } of segmentsOf(sequence)) {
    rows.push({ heading: `${label} · ${(end - start).toLocaleString("en")} tokens`, start, end });
    for (let at = start; at < end; at += columns)
      rows.push({ heading: null, start: at, end: Math.min(end, at + columns) });
  }
  return rows;
}

/** The row that holds a token, found by bisection. */
export function rowAt(rows: readonly Row[], token: number): number {
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((rows[middle]?.start ?? 0) <= token) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Shades from 0 (certain) to 4 (improbable), by the probability. */
export const LIMITS = [0.9, 0.5, 0.1, 0.01] as const;

export function shadeOf(logprob: number): number {
  const probability = Math.exp(logprob);
  const shade = LIMITS.findIndex((limit) => probability >= limit);
  return shade < 0 ? LIMITS.length : shade;
}

/** The token that a key leads to, or null if the key does not move. */
export function moved(key: string, token: number, columns: number, page: number, count: number): number | null {
  const steps: Record<string, number> = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: columns,
    ArrowUp: -columns,
    PageDown: columns * page,
    PageUp: -columns * page,
    Home: -count,
    End: count,
  };
  const by = steps[key];
  return by === undefined ? null : Math.max(0, Math.min(count - 1, token + by));
}
