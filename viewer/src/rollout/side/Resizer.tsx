/** The edge of the side panel: drag it, or move it with the arrow keys. The width stays until the page is left. */

import { useRef, useState } from "preact/hooks";

const USUAL = 400;
const LEAST = 280;
const MOST = 1000;
const STEP = 40;

/** Survives the way from one rollout to the next one. */
let latest: number | null = null;

/** The chosen width in pixels, null for the usual one, and the edge itself. */
export function useResizer() {
  const [width, setWidth] = useState(latest);
  const begun = useRef<{ x: number; width: number } | null>(null);
  const set = (wanted: number): void => {
    latest = Math.max(LEAST, Math.min(MOST, Math.round(wanted)));
    setWidth(latest);
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    set((width ?? USUAL) + step);
  };
  const edge = (
    <div
      class="side-edge"
      role="separator"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label="Width of the result"
      aria-valuemin={LEAST}
      aria-valuemax={MOST}
      aria-valuenow={width ?? USUAL}
      title="Drag, or press the arrow keys, to change the width"
      onKeyDown={press}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        begun.current = { x: event.clientX, width: width ?? USUAL };
      }}
      onPointerMove={(event) => begun.current && set(begun.current.width + begun.current.x - event.clientX)}
      onPointerUp={() => (begun.current = null)}
    />
  );
  return { width, edge };
}
