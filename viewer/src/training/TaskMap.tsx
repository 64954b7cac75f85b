/** Tasks by version or step: a square shows how many groups were never solved, had different rewards, or were always solved. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Over, Training } from "../api";
import { visible } from "../rollout/text/visible";
import { navigate } from "../state";
import { colorOf, useTheme } from "../ui";
import { amount, count } from "../ui/format";
import { useWidth } from "../ui/useWidth";

type Row = Training["rows"][number];
type Place = { row: number; column: number };

const AXIS = 18;
const WIDEST = 40;
const KINDS = [
  { name: "never solved", color: "--mark-unresolved" },
  { name: "different rewards", color: "--series-2" },
  { name: "always solved", color: "--reward-high" },
] as const;

interface Props {
  training: Training;
  over: Over;
  hrefOf(row: Row): string;
}

export function TaskMap({ training: { rows, columns }, over, hrefOf }: Props) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [place, setPlace] = useState<Place | null>(null);
  const theme = useTheme();
  const cell = { width: Math.max(2, Math.min(WIDEST, width / columns.length)), height: rows.length > 60 ? 5 : 12 };
  const size = { width: Math.floor(cell.width * columns.length), height: cell.height * rows.length + AXIS };
  useEffect(() => {
    const pen = canvas.current?.getContext("2d");
    if (!canvas.current || !pen || width === 0) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    canvas.current.width = Math.round(size.width * ratio);
    canvas.current.height = Math.round(size.height * ratio);
    pen.scale(ratio, ratio);
    const colors = KINDS.map((kind) => colorOf(kind.color));
    rows.forEach((row, at) => drawRow(pen, row, at * cell.height, cell, colors));
    drawAxis(pen, columns, cell.width, size, colorOf("--text-dim"));
  }, [rows, columns, theme, width]);
  const placeOf = ({ offsetX, offsetY }: MouseEvent): Place | null => {
    const [row, column] = [Math.floor(offsetY / cell.height), Math.floor(offsetX / cell.width)];
    return row < rows.length && column < columns.length ? { row, column } : null;
  };
  const open = (at: Place | null): void => {
    const row = at === null ? undefined : rows[at.row];
    if (row) navigate(hrefOf(row));
  };
  const label = `${amount(rows.length, "row")} of tasks by ${amount(columns.length, over)}, in the order of the table below.`;
  return (
    <div class="task-map">
      <div ref={frame}>
        <canvas
          ref={canvas}
          role="img"
          aria-label={label}
          style={{ width: `${size.width}px`, height: `${size.height}px` }}
          onPointerMove={(event) => setPlace(placeOf(event))}
          onPointerLeave={() => setPlace(null)}
          onClick={(event) => open(placeOf(event))}
        />
      </div>
      <p class="task-map-tip dim">{place ? describe(rows, columns, over, place) : `${over} from left to right; tasks that stopped first are on top.`}</p>
      <ul class="legend" aria-label="Legend">
        {KINDS.map((kind) => (
          <li key={kind.name}>
            <span class="legend-swatch" style={{ background: `var(${kind.color})` }} /> {kind.name}
          </li>
        ))}
      </ul>
    </div>
  );
}

function drawRow(pen: CanvasRenderingContext2D, row: Row, y: number, cell: { width: number; height: number }, colors: string[]): void {
  row.cells.forEach((counts, column) => {
    if (counts === null) return;
    const total = counts.reduce((sum, each) => sum + each, 0);
    const gap = cell.width > 4 ? 1 : 0;
    let x = column * cell.width;
    counts.forEach((each, kind) => {
      const part = ((cell.width - gap) * each) / total;
      pen.fillStyle = colors[kind] ?? "";
      // Different rewards are higher than the others, so that they can be seen without color.
      const inset = kind === 1 ? 0 : cell.height / 4;
      pen.fillRect(x, y + inset, part, cell.height - 1 - 2 * inset);
      x += part;
    });
  });
}

function drawAxis(pen: CanvasRenderingContext2D, columns: number[], width: number, size: { width: number; height: number }, color: string): void {
  pen.fillStyle = color;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "bottom";
  const every = Math.ceil(48 / width);
  for (let at = 0; at < columns.length; at += every) {
    if (at * width + 24 < size.width || at === 0) pen.fillText(count(columns[at]), at * width + 1, size.height);
  }
}

function describe(rows: Row[], columns: number[], over: Over, { row, column }: Place): string {
  const found = rows[row];
  if (!found) return "";
  const counts = found.cells[column];
  const seen = counts
    ? KINDS.flatMap(({ name }, kind) => (counts[kind] ? `${amount(counts[kind] ?? 0, "group")} ${name}` : [])).join(", ")
    : "not sampled";
  const more = found.count > 1 ? ` and ${found.count - 1} more` : "";
  return `${visible(found.title)}${more}, ${over} ${count(columns[column])}: ${seen}`;
}
