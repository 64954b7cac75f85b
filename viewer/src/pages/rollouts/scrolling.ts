/**
 * Scroll through more rows than an element can hold. Browsers limit heights (Firefox to about 17 million px), so the
 * scrolled element has at most `TALLEST` px. In a longer table, small movements keep their size, and large ones, such
 * as those of the scroll bar's handle, go to the same share of the whole.
 */

export const ROW = 28;
const TALLEST = 15_000_000;

export interface Place {
  /** Where the window begins, in px of the whole table. */
  top: number;
  /** The scroll position of the element at that place. */
  scrollTop: number;
}

export const START: Place = { top: 0, scrollTop: 0 };

/** The height of the scrolled element. */
export function heightOf(rows: number): number {
  return Math.min(rows * ROW, TALLEST);
}

/** Follow the element to a new scroll position. `height` is that of the window. */
export function scrolled(old: Place, scrollTop: number, rows: number, height: number): Place {
  const last = lastTop(rows, height);
  const lastScroll = Math.max(0, heightOf(rows) - height);
  if (scrollTop <= 0 || scrollTop >= lastScroll - 1) return { top: scrollTop <= 0 ? 0 : last, scrollTop };
  if (last === lastScroll) return { top: scrollTop, scrollTop };
  const moved = scrollTop - old.scrollTop;
  const top = Math.abs(moved) < height ? old.top + moved : (scrollTop / lastScroll) * last;
  return { top: clamp(top, 0, last), scrollTop };
}

/** The place with this row in the window: the old one if it is there already, and in the middle after a long way. */
export function showing(old: Place, row: number, rows: number, height: number): Place {
  const top = clamp(old.top, (row + 1) * ROW - height, row * ROW);
  if (top === old.top) return old;
  const wanted = Math.abs(top - old.top) > height ? row * ROW - height / 2 : top;
  return placeAt(clamp(wanted, 0, lastTop(rows, height)), rows, height);
}

/** The first and the last row that the window shows, in part at least. */
export function visible(place: Place, rows: number, height: number): { first: number; last: number } {
  const first = Math.floor(place.top / ROW);
  return { first, last: Math.min(rows - 1, Math.floor((place.top + height) / ROW)) };
}

function placeAt(top: number, rows: number, height: number): Place {
  const last = lastTop(rows, height);
  const lastScroll = Math.max(0, heightOf(rows) - height);
  return { top, scrollTop: last === lastScroll ? top : Math.round((top / last) * lastScroll) };
}

function lastTop(rows: number, height: number): number {
  return Math.max(0, rows * ROW - height);
}

function clamp(value: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, value));
}
