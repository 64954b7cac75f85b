/** Where the cells of the heat map are, and how they are drawn. */
import type { Overview } from "../api";

export type Heat = Overview["heatmap"];
export type Cell = number | null | "failed";

export interface Place {
  task: number;
  /** Null means the number of the task on its axis. */
  repeat: number | null;
}

/** Tasks are columns and repeats are rows, or the reverse if there are few tasks. What does not fit continues in the next band. */
export interface Grid {
  isTransposed: boolean;
  columns: number;
  rows: number;
  /** Columns of a full band. */
  perBand: number;
  left: number;
  cellWidth: number;
  cellHeight: number;
  /** From the top of one band to that of the next one. */
  bandHeight: number;
  width: number;
  height: number;
}

export interface Palette {
  low: string;
  high: string;
  failed: string;
  line: string;
  text: string;
}

const TOP = 6;
const AXIS = 20;
const NARROWEST = 10;
const WIDEST = 30;
const LABEL_ROOM = 6;
const DIGIT = 7;

export function gridOf(heat: Heat, width: number): Grid {
  const tasks = heat.tasks.length;
  const isTransposed = heat.repeats > tasks;
  const [columns, rows] = isTransposed ? [heat.repeats, tasks] : [tasks, heat.repeats];
  const left = LABEL_ROOM + DIGIT * Math.max(2, labelOf(heat, !isTransposed, rows - 1).length);
  const room = Math.max(NARROWEST, width - left - 1);
  const bands = Math.max(1, Math.ceil(columns / Math.floor(room / NARROWEST)));
  // Bands of equal length, so that the last one is not a stub.
  const perBand = Math.max(1, Math.ceil(columns / bands));
  const cellWidth = Math.min(WIDEST, Math.floor(room / perBand));
  const cellHeight = Math.max(5, Math.min(22, cellWidth, Math.floor(280 / Math.max(1, rows))));
  const bandHeight = TOP + rows * cellHeight + AXIS;
  return { isTransposed, columns, rows, perBand, left, cellWidth, cellHeight, bandHeight, width, height: bands * bandHeight };
}

/** The left upper corner of a cell, or of a task's number on its axis. */
export function cornerOf(grid: Grid, { task, repeat }: Place): { x: number; y: number } {
  if (grid.isTransposed) return repeat === null ? { x: 0, y: cornerAt(grid, 0, task).y } : cornerAt(grid, repeat, task);
  return cornerAt(grid, task, repeat ?? grid.rows);
}

/** The cell or the number of a task at a place. */
export function placeAt(grid: Grid, x: number, y: number): Place | null {
  const column = Math.floor((x - grid.left) / grid.cellWidth);
  const band = Math.floor(y / grid.bandHeight);
  const row = Math.max(0, Math.floor((y - TOP - band * grid.bandHeight) / grid.cellHeight));
  const at = band * grid.perBand + column;
  if (y < 0 || column >= grid.perBand || at >= grid.columns) return null;
  if (grid.isTransposed) return row < grid.rows ? { task: row, repeat: column < 0 ? null : at } : null;
  return column < 0 ? null : { task: at, repeat: row < grid.rows ? row : null };
}

/** The cell to which an arrow key moves; null for other keys. */
export function movedBy(grid: Grid, key: string, { task, repeat }: Place): Place | null {
  let [column, row] = grid.isTransposed ? [repeat ?? 0, task] : [task, repeat ?? 0];
  if (key === "ArrowRight") column = Math.min(column + 1, grid.columns - 1);
  else if (key === "ArrowLeft") column = Math.max(column - 1, 0);
  else if (key === "ArrowDown") row = Math.min(row + 1, grid.rows - 1);
  else if (key === "ArrowUp") row = Math.max(row - 1, 0);
  else if (key === "Home") column = 0;
  else if (key === "End") column = grid.columns - 1;
  else return null;
  return grid.isTransposed ? { task: row, repeat: column } : { task: column, repeat: row };
}

function cornerAt(grid: Grid, column: number, row: number): { x: number; y: number } {
  const band = Math.floor(column / grid.perBand);
  return {
    x: grid.left + (column % grid.perBand) * grid.cellWidth,
    y: TOP + band * grid.bandHeight + row * grid.cellHeight,
  };
}

function labelOf(heat: Heat, isRepeat: boolean, at: number): string {
  return String(isRepeat ? at * heat.per_column : (heat.tasks[at]?.first ?? at));
}

/** The lowest and highest reward that the colors distinguish: 0 to 1, or more if there are others. */
export function extentOf(heat: Heat): { low: number; high: number } {
  let [low, high] = [0, 1];
  for (const cells of heat.cells) {
    for (const cell of cells) {
      if (typeof cell !== "number") continue;
      low = Math.min(low, cell);
      high = Math.max(high, cell);
    }
  }
  return { low, high };
}

export function draw(canvas: HTMLCanvasElement, grid: Grid, heat: Heat, palette: Palette): void {
  const ratio = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.round(grid.width * ratio);
  canvas.height = Math.round(grid.height * ratio);
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(ratio, ratio);
  const { low, high } = extentOf(heat);
  for (let task = 0; task < heat.tasks.length; task++) {
    for (let repeat = 0; repeat < heat.repeats; repeat++) {
      const { x, y } = cornerOf(grid, { task, repeat });
      const cell = heat.cells[task]?.[repeat] ?? null;
      drawCell(pen, x, y, grid.cellWidth - 1, grid.cellHeight - 1, cell, shareOf(cell, low, high), palette);
    }
  }
  drawLabels(pen, grid, heat, palette);
}

function shareOf(cell: Cell, low: number, high: number): number {
  return typeof cell === "number" ? (cell - low) / (high - low) : 0;
}

function drawCell(
  pen: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, cell: Cell, share: number, palette: Palette,
): void {
  if (typeof cell === "number") {
    pen.fillStyle = mixed(palette.low, palette.high, share);
    pen.fillRect(x, y, width, height);
    return;
  }
  pen.strokeStyle = cell === "failed" ? palette.failed : palette.line;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  if (cell === null) return;
  // A cross, or half a cell if it is small, so that a failure differs from a reward without color, too.
  if (height < 8) {
    pen.fillStyle = palette.failed;
    pen.fillRect(x, y, width / 2, height);
    return;
  }
  pen.lineWidth = 1.5;
  const inset = 3;
  pen.beginPath();
  pen.moveTo(x + inset, y + inset);
  pen.lineTo(x + width - inset, y + height - inset);
  pen.moveTo(x + width - inset, y + inset);
  pen.lineTo(x + inset, y + height - inset);
  pen.stroke();
}

function drawLabels(pen: CanvasRenderingContext2D, grid: Grid, heat: Heat, palette: Palette): void {
  pen.fillStyle = palette.text;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const everyRow = Math.ceil(14 / grid.cellHeight);
  const widest = labelOf(heat, grid.isTransposed, grid.columns - 1).length * DIGIT;
  const everyColumn = niceStep(Math.ceil((widest + 8) / grid.cellWidth));
  for (let first = 0; first < grid.columns; first += grid.perBand) {
    pen.textAlign = "right";
    for (let row = 0; row < grid.rows; row += everyRow) {
      const { y } = cornerAt(grid, first, row);
      pen.fillText(labelOf(heat, !grid.isTransposed, row), grid.left - LABEL_ROOM, y + grid.cellHeight / 2);
    }
    pen.textAlign = "left";
    const end = Math.min(grid.columns, first + grid.perBand);
    for (let column = Math.ceil(first / everyColumn) * everyColumn; column < end; column += everyColumn) {
      const { x, y } = cornerAt(grid, column, grid.rows);
      if (x + widest <= grid.width) pen.fillText(labelOf(heat, grid.isTransposed, column), x + 1, y + AXIS / 2 - 2);
    }
  }
}

function niceStep(least: number): number {
  return [1, 2, 5, 10, 20, 50].find((step) => step >= least) ?? least;
}

/** Mix two colors as `getComputedStyle` gives them: `rgb(1, 2, 3)`. */
function mixed(from: string, to: string, share: number): string {
  const [a, b] = [from, to].map((color) => color.match(/[\d.]+/g)?.map(Number) ?? []);
  const part = (at: number) => Math.round((a?.[at] ?? 0) * (1 - share) + (b?.[at] ?? 0) * share);
  return `rgb(${part(0)} ${part(1)} ${part(2)})`;
}
