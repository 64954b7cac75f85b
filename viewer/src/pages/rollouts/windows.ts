/** The rows of a long table: windows of 200, loaded when they come into sight. The latest ones are kept. */

import type { RolloutRow, RolloutsPage } from "../../api";
import { messageOf } from "../../data";
import { isAbort } from "../../source";

const WINDOW = 200;
/** 8,000 rows: about 8 MB. */
const MOST_KEPT = 40;
const MOST_REQUESTS = 2;
/** Rows that the scroll bar only passes by are not asked for. */
const PAUSE_MS = 40;
/** A refresh waits for this many times the duration of the latest reply. */
const BREATHER = 5;

export type Load = (offset: number, limit: number, signal: AbortSignal) => Promise<RolloutsPage>;

export class Windows {
  /** Null until the first reply. */
  total: number | null = null;
  error: string | null = null;
  private readonly kept = new Map<number, { rows: RolloutRow[]; round: number }>();
  private readonly requested = new Map<number, AbortController>();
  private wanted: number[] = [0];
  private round = 0;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private refreshTimer: ReturnType<typeof setTimeout> | null = null;
  /** When the latest reply came, and after how long. */
  private replied = { at: 0, after: 0 };

  constructor(
    private readonly load: Load,
    private readonly onChange: () => void,
  ) {}

  row(index: number): RolloutRow | undefined {
    return this.kept.get(Math.floor(index / WINDOW))?.rows[index % WINDOW];
  }

  /** Show a change at once, before the server has it. */
  replace(index: number, row: RolloutRow): void {
    const kept = this.kept.get(Math.floor(index / WINDOW));
    if (kept) kept.rows[index % WINDOW] = row;
    this.onChange();
  }

  /** Load what the screen shows now, and give up what it no longer shows. */
  show(first: number, last: number): void {
    const from = Math.floor(Math.max(0, first) / WINDOW);
    const to = Math.floor(Math.max(0, last) / WINDOW);
    this.wanted = Array.from({ length: to - from + 1 }, (_, at) => from + at);
    for (const [number, controller] of this.requested) {
      if (!this.wanted.includes(number)) controller.abort();
    }
    if (this.missing().length === 0) return;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), this.total === null ? 0 : PAUSE_MS);
  }

  /** Load the visible rows again; the old ones stay meanwhile. Slow requests, such as a search, run less often. */
  refresh(): void {
    if (this.refreshTimer !== null) return;
    const { at, after } = this.replied;
    const pause = at + BREATHER * after - performance.now();
    this.refreshTimer = setTimeout(() => this.refreshNow(), Math.max(0, pause));
  }

  refreshNow(): void {
    if (this.refreshTimer !== null) clearTimeout(this.refreshTimer);
    this.refreshTimer = null;
    this.round += 1;
    this.error = null;
    this.start();
  }

  close(): void {
    if (this.refreshTimer !== null) clearTimeout(this.refreshTimer);
    if (this.timer !== null) clearTimeout(this.timer);
    for (const controller of this.requested.values()) controller.abort();
    this.wanted = [];
  }

  private missing(): number[] {
    return this.wanted.filter((number) => this.kept.get(number)?.round !== this.round && !this.requested.has(number));
  }

  private start(): void {
    for (const number of this.missing()) {
      if (this.requested.size >= MOST_REQUESTS) return;
      void this.request(number);
    }
  }

  private async request(number: number): Promise<void> {
    const controller = new AbortController();
    const { round } = this;
    const started = performance.now();
    this.requested.set(number, controller);
    try {
      const page = await this.load(number * WINDOW, WINDOW, controller.signal);
      if (!controller.signal.aborted) this.keep(number, page, round);
    } catch (error) {
      if (!controller.signal.aborted && !isAbort(error)) this.fail(number, messageOf(error), round);
    } finally {
      this.replied = { at: performance.now(), after: performance.now() - started };
      this.requested.delete(number);
      this.start();
    }
  }

  private keep(number: number, page: RolloutsPage, round: number): void {
    this.kept.delete(number);
    this.kept.set(number, { rows: page.rows, round });
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= MOST_KEPT) break;
      if (!this.wanted.includes(oldest)) this.kept.delete(oldest);
    }
    this.total = page.total;
    this.error = null;
    this.onChange();
  }

  /** The window counts as loaded, so that an error is not asked for again and again. */
  private fail(number: number, message: string, round: number): void {
    this.kept.set(number, { rows: this.kept.get(number)?.rows ?? [], round });
    this.error = message;
    this.onChange();
  }
}
