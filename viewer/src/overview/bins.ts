/** The bins of a histogram as its bars: what each covers, and how it is named. */

export interface Bins {
  low: number;
  high: number;
  counts: number[];
}

export interface Bar {
  from: number;
  to: number;
  count: number;
  /** It also counts everything above `to`. */
  isOpen: boolean;
}

interface Kind {
  /** The values are whole numbers. */
  isWhole?: boolean;
  /** The largest value, which the last bin counts even if it is above `high`. */
  max?: number | undefined;
}

export function barsOf(bins: Bins, { isWhole = false, max = bins.high }: Kind): Bar[] {
  const { low, high, counts } = bins;
  const isOpen = (at: number, length: number) => at === length - 1 && max > high;
  if (low === high) return [{ from: low, to: high, count: counts.reduce((sum, each) => sum + each, 0), isOpen: max > high }];
  const width = (high - low) / counts.length;
  if (isWhole && width < 1 && Number.isInteger(low)) return wholeBars(bins, max > high);
  return counts.map((count, at) => ({
    from: low + at * width,
    to: at === counts.length - 1 ? high : low + (at + 1) * width,
    count,
    isOpen: isOpen(at, counts.length),
  }));
}

/** Bins narrower than 1 have at most one whole number each. One bar per number looks better than bars with gaps. */
function wholeBars({ low, high, counts }: Bins, isOpen: boolean): Bar[] {
  const last = counts.length - 1;
  const binOf = (value: number) => Math.min(last, Math.floor((value - low) * (counts.length / (high - low))));
  const values = Array.from({ length: Math.floor(high - low) + 1 }, (_, at) => low + at);
  const bars = values.map((value) => ({ from: value, to: value, count: counts[binOf(value)] ?? 0, isOpen: isOpen && binOf(value) === last }));
  const end = low + values.length;
  if (!isOpen || bars.at(-1)?.isOpen) return bars;
  return [...bars, { from: end, to: end, count: counts[last] ?? 0, isOpen }];
}

/** The limits of a filter for a bar; without an upper one if the bar is open. */
export function limitsOf(bars: Bar[], at: number): { low: number; high: number | undefined } {
  const bar = bars[at];
  if (!bar) return { low: 0, high: undefined };
  return { low: shortBelow(bar.from), high: bar.isOpen ? undefined : upperEnd(bar, bars[at + 1]) };
}

/** Round to a short number that excludes no value of the bar. */
function shortBelow(from: number): number {
  const rounded = Number(from.toPrecision(9));
  return rounded <= from ? rounded : from;
}

/** Bars exclude their upper end, unlike filters. If the next bar begins there and has values, end just below it. */
function upperEnd(bar: Bar, next: Bar | undefined): number {
  if (next && next.count > 0 && next.from === bar.to) return Number((bar.to - (bar.to - bar.from) * 1e-4).toPrecision(6));
  const rounded = Number(bar.to.toPrecision(9));
  return rounded >= bar.to ? rounded : bar.to;
}
