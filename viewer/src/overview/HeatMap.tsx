/** The rewards of all rollouts, task by repeat. A cell opens its rollout, the number of a task opens the task. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Filter } from "../api";
import { href, hrefWithFilter, navigate, useFilter } from "../state";
import { count, number } from "../ui/format";
import { colorOf, useTheme } from "../ui/theme";
import { cornerOf, draw, extentOf, gridOf, movedBy, placeAt } from "./heat";
import type { Cell, Heat, Palette, Place } from "./heat";
import { useWidth } from "../ui/useWidth";
import "./heat.css";

function palette(): Palette {
  return {
    low: colorOf("--reward-low"),
    high: colorOf("--reward-high"),
    failed: colorOf("--failed"),
    line: colorOf("--mark-unresolved"),
    text: colorOf("--text-dim"),
  };
}

export function HeatMap({ run, heat }: { run: string; heat: Heat }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const [filter] = useFilter();
  const [place, setPlace] = useState<Place | null>(null);
  const grid = useMemo(() => gridOf(heat, width), [heat, width]);
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, grid, heat, palette());
  }, [grid, heat, theme, width]);

  const placeOf = (event: PointerEvent | MouseEvent) => placeAt(grid, event.offsetX, event.offsetY);
  const open = (chosen: Place | null) => chosen && navigate(addressOf(run, heat, filter, chosen));
  const press = (event: KeyboardEvent) => {
    const at = place ?? { task: 0, repeat: 0 };
    if (event.key === "Enter") return open(at);
    if (event.key === "t") return open({ ...at, repeat: null });
    const to = movedBy(grid, event.key, at);
    if (!to) return;
    event.preventDefault();
    setPlace(to);
  };
  const corner = place && cornerOf(grid, place);

  return (
    <div class="heat">
      <div
        class="heat-frame"
        ref={frame}
        tabIndex={0}
        role="application"
        aria-roledescription="heat map"
        aria-label={`${summary(heat)} Arrow keys move, Enter opens the rollout, t opens the task.`}
        onKeyDown={press}
        onFocus={() => setPlace((old) => old ?? { task: 0, repeat: 0 })}
        onBlur={() => setPlace(null)}
      >
        <canvas
          ref={canvas}
          style={{ width: `${grid.width}px`, height: `${grid.height}px` }}
          class={place ? "is-over" : ""}
          onPointerMove={(event) => setPlace(placeOf(event))}
          onPointerLeave={() => setPlace(null)}
          onClick={(event) => open(placeOf(event))}
        />
        {place && corner && place.repeat !== null && (
          <span
            class="heat-cursor"
            style={{ left: `${corner.x}px`, top: `${corner.y}px`, width: `${grid.cellWidth - 1}px`, height: `${grid.cellHeight - 1}px` }}
          />
        )}
        {place && corner && (
          <p class="heat-tip" style={tipPosition(corner, grid.width)} role="status">
            {describe(heat, place)}
          </p>
        )}
      </div>
      <Legend heat={heat} isTransposed={grid.isTransposed} />
    </div>
  );
}

function Legend({ heat, isTransposed }: { heat: Heat; isTransposed: boolean }) {
  const { low, high } = extentOf(heat);
  const cells = heat.cells.flat();
  return (
    <div class="heat-legend dim">
      <span>
        {heat.repeats === 1 && heat.per_column > 1
          ? "a square for all repeats of a task;"
          : isTransposed
            ? "tasks down, repeats across;"
            : "tasks across, repeats down;"}
      </span>
      <span>{number(low)}</span>
      <span class="heat-scale" aria-hidden="true" />
      <span>{number(high)} {heat.per_column > 1 || heat.tasks.some((task) => task.count > 1) ? "mean reward" : "reward"}</span>
      {heat.per_column > 1 && heat.repeats > 1 && <span>{count(heat.per_column)} of {count(heat.of_repeats)} repeats in a square</span>}
      {cells.includes("failed") && <span><span class="heat-key is-failed" aria-hidden="true">×</span> failed</span>}
      {cells.includes(null) && <span><span class="heat-key" aria-hidden="true" /> unresolved or not selected</span>}
    </div>
  );
}

function describe(heat: Heat, { task, repeat }: Place): string {
  const group = heat.tasks[task];
  if (!group) return "";
  const name = group.count > 1 ? `${group.count} tasks from ${group.first}` : `task ${group.first}`;
  if (repeat === null) return `${name}: compare its repeats`;
  return `${name}, ${repeatsOf(heat, repeat)}: ${valueOf(heat.cells[task]?.[repeat] ?? null, group.count > 1 || heat.per_column > 1)}`;
}

function repeatsOf({ per_column, of_repeats, repeats }: Heat, column: number): string {
  const first = column * per_column;
  if (per_column === 1) return `repeat ${first}`;
  return repeats === 1 ? "all repeats" : `repeats ${first} to ${Math.min(first + per_column, of_repeats) - 1}`;
}

function valueOf(cell: Cell, isMean: boolean): string {
  if (cell === null) return "unresolved or not selected";
  return cell === "failed" ? "failed" : `${isMean ? "mean reward" : "reward"} ${number(cell)}`;
}

function summary(heat: Heat): string {
  const cells = heat.cells.flat();
  const failed = cells.filter((cell) => cell === "failed").length;
  const missing = cells.filter((cell) => cell === null).length;
  const tasks = heat.tasks.reduce((sum, each) => sum + each.count, 0);
  return `${count(tasks)} tasks by ${count(heat.of_repeats)} repeats: ${count(cells.length - failed - missing)} scored, ${count(failed)} failed, ${count(missing)} unresolved or not selected.`;
}

/** A group of tasks opens the table, sorted by task, about where the group begins. */
function addressOf(run: string, heat: Heat, filter: Filter, { task, repeat }: Place): string {
  const group = heat.tasks[task] ?? { first: 0, count: 1 };
  if (group.count > 1) {
    const before = heat.tasks.slice(0, task).reduce((sum, each) => sum + each.count, 0);
    return hrefWithFilter({ page: "rollouts", run }, filter, { row: before * heat.of_repeats });
  }
  if (repeat === null || heat.per_column > 1) return href({ page: "task", run, task: group.first });
  return href({ page: "rollout", run, task: group.first, repeat });
}

function tipPosition(corner: { x: number; y: number }, width: number): Record<string, string> {
  const top = `${corner.y - 6}px`;
  return corner.x > width / 2 ? { right: `${width - corner.x + 4}px`, top } : { left: `${corner.x + 24}px`, top };
}
