/** Draw much text in slices, so that the page answers to clicks and keys in between. */

const SLICE_MS = 30;

const waiting = new Set<() => void>();
let end: number | null = null;

/** Call `work` now if this slice has time left, or else in a later one. Returns a function that cancels it. */
export function inSlices(work: () => void): () => void {
  if (waiting.size === 0 && hasTime()) {
    work();
    return () => undefined;
  }
  waiting.add(work);
  return () => void waiting.delete(work);
}

/** Whether the current slice has time left. The first question begins a slice. */
function hasTime(): boolean {
  if (end === null) {
    end = performance.now() + SLICE_MS;
    setTimeout(nextSlice);
  }
  return performance.now() < end;
}

function nextSlice(): void {
  end = null;
  for (const work of waiting) {
    if (!hasTime()) return;
    waiting.delete(work);
    work();
  }
}
