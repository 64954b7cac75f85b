/** A uPlot chart that follows the width of its place and the theme. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./plot.css";
import { MISSING } from "../ui/format";
import { colorOf, useTheme } from "../ui/theme";
import { useWidth } from "../ui/useWidth";

export interface Line {
  label: string;
  values: (number | null)[];
  /** The custom property of its color. */
  color: string;
  /** Its axis is on the right. */
  isRight?: boolean;
  format: (value: number) => string;
  isFilled?: boolean;
}

/** Seconds between two labels of the time axis. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60)].concat(
  [1, 2, 4, 8, 12, 24, 48, 96, 192].map((hours) => hours * 3600),
);

const WHOLE_STEPS = [1, 10, 100, 1000, 10_000, 100_000].flatMap((size) => [size, 2 * size, 5 * size]);

interface Props {
  /** What the chart shows, in words, with its last values. */
  label: string;
  x: number[];
  lines: Line[];
  formatX: (value: number) => string;
  /** What the horizontal axis shows. */
  nameX?: string;
  /** The distances that labels of the horizontal axis may have; null for whole numbers of any size. */
  steps?: number[] | null;
  height?: number;
}

export function Plot({ label, x, lines, formatX, nameX = "at", steps = TIME_STEPS, height = 180 }: Props) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const theme = useTheme();
  const plot = useRef<uPlot | null>(null);
  const data = [x, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const shape = lines.map((line) => line.label).join("\n");

  useEffect(() => {
    if (!frame.current || width === 0) return;
    const made = new uPlot(optionsOf(lines, formatX, nameX, steps, width, height), data, frame.current);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
    // New values go into the existing chart below, so that the reader's cursor stays.
  }, [width, height, theme, shape]);
  useEffect(() => plot.current?.setData(data), [x, lines]);

  return <div class="plot" ref={frame} role="img" aria-label={label} />;
}

function optionsOf(
  lines: Line[], formatX: Props["formatX"], nameX: string, steps: number[] | null, width: number, height: number,
): uPlot.Options {
  const [text, grid] = [colorOf("--text-dim"), colorOf("--border")];
  const left = lines.find((line) => !line.isRight);
  const right = lines.find((line) => line.isRight);
  const font = "11px system-ui, sans-serif";
  const axis = { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  const yAxis = (line: Line) => ({ ...axis, size: 48, values: (_: uPlot, values: number[]) => values.map(line.format) });
  const range = (_: uPlot, least: number | null, most: number | null): uPlot.Range.MinMax => {
    const [low, high] = [Math.min(0, (least ?? 0) * 1.08), Math.max(0, (most ?? 1) * 1.08)];
    return [low, high > low ? high : 1];
  };
  return {
    width,
    height,
    legend: { live: true },
    cursor: { y: false, drag: { setScale: false } },
    // Until a reader points at the chart, its legend has the last values.
    hooks: { setCursor: [showLast], ready: [showLast], setData: [showLast] },
    scales: { x: { time: false }, left: { range }, right: { range } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, space: 80, incrs: steps ?? WHOLE_STEPS, values: (_, values) => values.map(formatX) },
      ...(left ? [{ ...yAxis(left), scale: "left" }] : []),
      ...(right ? [{ ...yAxis(right), scale: "right", side: 1 as const, grid: { show: false } }] : []),
    ],
    series: [
      { label: nameX, value: (_, value) => (value === null ? MISSING : formatX(value)) },
      ...lines.map((line) => {
        const stroke = colorOf(line.color);
        return {
          label: line.label,
          scale: line.isRight ? "right" : "left",
          stroke,
          width: 1.5,
          points: { show: (drawn: uPlot) => drawn.data[0].length < 2 },
          value: (_: uPlot, value: number | null) => (value === null ? MISSING : line.format(value)),
          ...(line.isFilled ? { fill: withAlpha(stroke) } : {}),
        };
      }),
    ],
  };
}

function showLast(plot: uPlot): void {
  if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

function withAlpha(color: string): string {
  return color.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)");
}
