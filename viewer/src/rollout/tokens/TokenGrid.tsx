/** The tokens of a sequence as cells. Only the visible ones are drawn, so 100,000 tokens scroll smoothly. */

import { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useWidth } from "../../ui/useWidth";
import { useTheme } from "../../ui";
import { count, percent } from "../../ui/format";
import { moved, rowAt, rowsOf, segmentsOf } from "./cells";
import type { Sequence } from "./cells";
import { CELL_WIDTH, colors, paint, ROW_HEIGHT } from "./paint";

const HEIGHT = 520;

export function TokenGrid({ sequence }: { sequence: Sequence }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [active, setActive] = useState<number | null>(null);
  const theme = useTheme();
  const id = useId();
  const columns = Math.max(1, Math.floor(width / CELL_WIDTH));
  const rows = useMemo(() => rowsOf(sequence, columns), [sequence, columns]);
  // The theme is a dependency because the colours are read from the page.
  const palette = useMemo(colors, [theme]);
  const height = Math.min(HEIGHT, rows.length * ROW_HEIGHT);
  const draw = useCallback(() => {
    if (canvas.current === null || frame.current === null || width === 0) return;
    paint(canvas.current, { sequence, rows, scrollTop: frame.current.scrollTop, width, height, active }, palette);
  }, [sequence, rows, width, height, active, palette]);
  useLayoutEffect(draw, [draw]);
  useEffect(() => setActive(null), [sequence]);
  const total = sequence.ids.length;
  const press = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(height / ROW_HEIGHT) - 1);
    const next = moved(event.key, active ?? (event.key === "End" ? 0 : -1), columns, page, total);
    if (next === null) return;
    event.preventDefault();
    setActive(next);
    scrollTo(frame.current, rowAt(rows, next), height);
  };
  const point = (event: PointerEvent): void => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box || frame.current === null) return;
    const row = rows[Math.floor((event.clientY - box.top + frame.current.scrollTop) / ROW_HEIGHT)];
    const column = Math.floor((event.clientX - box.left) / CELL_WIDTH);
    const token = row && row.heading === null ? row.start + column : null;
    setActive(token !== null && row && column < columns && token < row.end ? token : null);
  };
  const goTo = (token: number): void => {
    if (frame.current !== null) frame.current.scrollTop = (rowAt(rows, token) - 1) * ROW_HEIGHT;
    setActive(token);
  };
  const text = active === null ? null : describe(sequence, active);
  return (
    <div class="tokens-grid">
      <label class="tokens-jump">
        Go to{" "}
        <select class="field" value="" onChange={(event) => goTo(Number(event.currentTarget.value))}>
          <option value="" disabled hidden>
            a part
          </option>
          {segmentsOf(sequence).map((segment) => (
            <option key={segment.start} value={segment.start}>
              {segment.label}
            </option>
          ))}
        </select>
      </label>
      <div class="tokens-frame" ref={frame} style={{ height: `${height}px` }} onScroll={draw}>
        <div style={{ height: `${rows.length * ROW_HEIGHT}px` }}>
          <canvas
            class="tokens-canvas"
            ref={canvas}
            style={{ width: `${width}px`, height: `${height}px` }}
            role="slider"
            tabIndex={0}
            aria-label="Token"
            aria-valuemin={0}
            aria-valuemax={Math.max(0, total - 1)}
            aria-valuenow={active ?? 0}
            aria-valuetext={text ?? `${count(total)} tokens`}
            aria-describedby={id}
            onKeyDown={press}
            onPointerMove={point}
            onPointerDown={point}
          />
        </div>
      </div>
      <p class="tokens-detail" id={id}>
        {text ?? "Point at a token, or move with the arrow keys."}
      </p>
    </div>
  );
}

function describe(sequence: Sequence, token: number): string {
  const logprob = sequence.logprobs[token] ?? null;
  const turn = sequence.turns.findIndex((each) => token >= each.start && token < each.end);
  return [
    `index ${count(token)}`,
    `id ${sequence.ids[token] ?? ""}`,
    logprob === null
      ? "no log-probability"
      : `log-probability ${logprob.toFixed(4)}, probability ${percent(Math.exp(logprob))}`,
    sequence.mask[token] === 1 ? "trained" : "not trained",
    ...(turn < 0 ? [] : [`turn ${turn + 1}`]),
  ].join(" · ");
}

/** Scroll the frame so that the row and its neighbours are in view. */
function scrollTo(frame: HTMLElement | null, row: number, height: number): void {
  if (frame === null) return;
  const top = row * ROW_HEIGHT;
  if (top < frame.scrollTop + ROW_HEIGHT) frame.scrollTop = top - ROW_HEIGHT;
  else if (top + 2 * ROW_HEIGHT > frame.scrollTop + height) frame.scrollTop = top + 2 * ROW_HEIGHT - height;
}
