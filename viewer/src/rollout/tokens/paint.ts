/** Draw the visible rows of tokens on a canvas. */

import { colorOf } from "../../ui";
import type { Row, Sequence } from "./cells";
import { LIMITS, shadeOf } from "./cells";

export const CELL_WIDTH = 62;
export const ROW_HEIGHT = 26;

/** How strongly the shades cover, from certain to improbable. */
export const SHADES = [0.07, 0.24, 0.45, 0.7, 0.95];

export interface Colors {
  text: string;
  dim: string;
  surface: string;
  border: string;
  shade: string;
  onShade: string;
  trained: string;
  focus: string;
}

export function colors(): Colors {
  return {
    text: colorOf("--text"),
    dim: colorOf("--text-dim"),
    surface: colorOf("--surface"),
    border: colorOf("--border"),
    shade: colorOf("--series-2"),
    onShade: colorOf("--on-accent"),
    trained: colorOf("--accent"),
    focus: colorOf("--text"),
  };
}

export interface View {
  sequence: Sequence;
  rows: readonly Row[];
  scrollTop: number;
  width: number;
  height: number;
  active: number | null;
}

export function paint(canvas: HTMLCanvasElement, view: View, palette: Colors): void {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  if (context === null) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.surface;
  context.fillRect(0, 0, view.width, view.height);
  const first = Math.floor(view.scrollTop / ROW_HEIGHT);
  const last = Math.min(view.rows.length - 1, Math.ceil((view.scrollTop + view.height) / ROW_HEIGHT));
  const hatch = hatching(context, palette);
  for (let index = first; index <= last; index++) {
    const row = view.rows[index];
    if (row === undefined) continue;
    const y = index * ROW_HEIGHT - view.scrollTop;
    if (row.heading === null) paintRow(context, view, row, y, palette, hatch);
    else paintHeading(context, row.heading, y, view.width, palette);
  }
}

function paintHeading(
  context: CanvasRenderingContext2D,
  heading: string,
  y: number,
  width: number,
  palette: Colors,
): void {
  context.fillStyle = palette.border;
  context.fillRect(0, y + 3, width, 1);
  context.fillStyle = palette.text;
  context.font = "600 12px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(heading, 4, y + ROW_HEIGHT / 2 + 3);
}

function paintRow(
  context: CanvasRenderingContext2D,
  view: View,
  row: Row,
  y: number,
  palette: Colors,
  hatch: CanvasPattern | string,
): void {
  const { ids, mask, logprobs } = view.sequence;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let token = row.start; token < row.end; token++) {
    const x = (token - row.start) * CELL_WIDTH;
    const isTrained = mask[token] === 1;
    const logprob = logprobs[token] ?? null;
    const [left, top, width, height] = [x + 1, y + 1, CELL_WIDTH - 2, ROW_HEIGHT - 3];
    const shade = logprob === null ? null : shadeOf(logprob);
    if (shade !== null) {
      context.globalAlpha = SHADES[shade] ?? 1;
      context.fillStyle = palette.shade;
      context.fillRect(left, top, width, height);
      context.globalAlpha = 1;
    } else if (!isTrained) {
      context.fillStyle = hatch;
      context.fillRect(left, top, width, height);
    }
    if (isTrained) {
      context.fillStyle = palette.trained;
      context.fillRect(left, top + height - 3, width, 3);
    }
    context.font = `${isTrained ? 600 : 400} 12px ui-monospace, "DejaVu Sans Mono", Menlo, monospace`;
    context.fillStyle =
      shade !== null && shade >= LIMITS.length - 1 ? palette.onShade : isTrained ? palette.text : palette.dim;
    context.fillText(String(ids[token] ?? ""), x + CELL_WIDTH / 2, y + ROW_HEIGHT / 2 - 1);
    if (token === view.active) {
      context.strokeStyle = palette.focus;
      context.lineWidth = 2;
      context.strokeRect(left, top, width, height);
    }
  }
}

function hatching(context: CanvasRenderingContext2D, palette: Colors): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  if (pen === null) return palette.surface;
  pen.strokeStyle = palette.border;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(0, 6);
  pen.lineTo(6, 0);
  pen.stroke();
  return context.createPattern(tile, "repeat") ?? palette.surface;
}
