/** The table itself: of any number of rows, only those in sight are in the document. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RolloutRow } from "../../api";
import { Star } from "../../notes/Star";
import type { Order } from "../../source";
import type { RolloutColumn } from "./columns";
import { ROW, START, heightOf, scrolled, showing, visible } from "./scrolling";
import type { Place } from "./scrolling";

export interface GridProps {
  total: number;
  rowAt(index: number): RolloutRow | undefined;
  /** Called with the rows in sight whenever they change. */
  onSee(first: number, last: number): void;
  columns: RolloutColumn[];
  sort: string;
  order: Order;
  onSort(key: string): void;
  selected: number | null;
  addressOf(row: RolloutRow, index: number): string;
  onOpen(index: number): void;
  /** Absent if stars cannot be changed. */
  onStar: ((index: number) => void) | undefined;
  isStale: boolean;
  /** The table begins at its top again when this changes. */
  orderKey: string;
}

const HEAD = 30;

export function Grid(props: GridProps) {
  const { total, columns, selected, onSee, orderKey } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const height = useHeight(scroller) - HEAD;
  const [place, setPlace] = useState<Place>(START);
  const go = (next: Place) => {
    setPlace(next);
    if (scroller.current) scroller.current.scrollTop = next.scrollTop;
  };
  const lastKey = useRef(orderKey);
  useLayoutEffect(() => {
    if (lastKey.current === orderKey) return;
    lastKey.current = orderKey;
    go(START);
  }, [orderKey]);
  useLayoutEffect(() => {
    if (selected === null || selected >= total || height <= 0) return;
    const next = showing(place, selected, total, height);
    if (next !== place) go(next);
  }, [selected, height > 0, total > 0]);
  const { first, last } = visible(place, total, height);
  useEffect(() => onSee(first, last), [first, last, onSee]);
  const width = columns.reduce((sum, column) => sum + (column.width ?? TITLE_WIDTH), STAR_WIDTH);
  const template = [
    `${STAR_WIDTH}px`,
    ...columns.map(({ width: own }) => (own === null ? `minmax(${TITLE_WIDTH}px, 1fr)` : `${own}px`)),
  ];
  return (
    <div
      class="grid"
      ref={scroller}
      role="grid"
      aria-label="Rollouts"
      aria-rowcount={total + 1}
      aria-colcount={columns.length + 1}
      aria-activedescendant={
        selected !== null && selected >= first && selected <= last ? `row-${selected}` : undefined
      }
      aria-busy={props.isStale}
      tabIndex={0}
      style={{ "--columns": template.join(" "), "--width": `${width}px` }}
      onScroll={(event) => setPlace(scrolled(place, event.currentTarget.scrollTop, total, height))}
    >
      <Head {...props} />
      <div
        class={props.isStale ? "grid-space is-stale" : "grid-space"}
        role="presentation"
        style={{ height: `${heightOf(total)}px` }}
      >
        <div class="grid-rows" role="rowgroup" style={{ height: `${Math.min(height, heightOf(total))}px` }}>
          {indices(first, last).map((index) => (
            <Row key={index} {...props} index={index} y={index * ROW - place.top} />
          ))}
        </div>
      </div>
    </div>
  );
}

const STAR_WIDTH = 32;
const TITLE_WIDTH = 240;

function Head({ columns, sort, order, onSort }: GridProps) {
  return (
    <div role="rowgroup" class="grid-head">
      <div role="row" class="grid-row" aria-rowindex={1}>
        <span role="columnheader" class="grid-cell">
          <span class="hidden">Star</span>
        </span>
        {columns.map((column) => {
          const isSorted = column.key === sort;
          return (
            <span
              key={column.key}
              role="columnheader"
              class={column.isNumber ? "grid-cell number" : "grid-cell"}
              title={column.hint}
              aria-sort={isSorted ? (order === "desc" ? "descending" : "ascending") : undefined}
            >
              {column.isSortable ? (
                <button type="button" class="sort" onClick={() => onSort(column.key)}>
                  <span class="cut">{column.label}</span>
                  <span class="sort-arrow" aria-hidden="true">
                    {isSorted ? (order === "desc" ? "↓" : "↑") : ""}
                  </span>
                </button>
              ) : (
                column.label
              )}
            </span>
          );
        })}
      </div>
    </div>
  );
}

function Row({
  index,
  y,
  rowAt,
  columns,
  selected,
  onOpen,
  onStar,
  addressOf,
}: GridProps & { index: number; y: number }) {
  const row = rowAt(index);
  const isSelected = index === selected;
  const place = { transform: `translateY(${y}px)` };
  if (!row) {
    return (
      <div role="row" class="grid-row is-missing" aria-rowindex={index + 2} style={place}>
        <span role="gridcell" class="grid-cell" aria-label="Loading" />
      </div>
    );
  }
  const open = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || getSelection()?.toString()) return;
    event.preventDefault();
    onOpen(index);
  };
  return (
    <div
      role="row"
      id={`row-${index}`}
      class={isSelected ? "grid-row is-selected" : "grid-row"}
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      style={place}
      onClick={open}
    >
      <span role="gridcell" class="grid-cell grid-star">
        <Star
          isOn={row.star}
          name={`task ${row.task}, repeat ${row.repeat}`}
          tabIndex={-1}
          onToggle={onStar && (() => onStar(index))}
        />
      </span>
      {columns.map((column, at) => (
        <span role="gridcell" key={column.key} class={column.isNumber ? "grid-cell number" : "grid-cell"}>
          {at === 0 ? (
            <a href={addressOf(row, index)} tabIndex={-1}>
              {column.render(row)}
            </a>
          ) : (
            column.render(row)
          )}
        </span>
      ))}
    </div>
  );
}

function indices(first: number, last: number): number[] {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => first + at);
}

function useHeight(element: { current: HTMLElement | null }): number {
  const [height, setHeight] = useState(HEAD);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const observer = new ResizeObserver(() => setHeight(target.clientHeight));
    setHeight(target.clientHeight);
    observer.observe(target);
    return () => observer.disconnect();
  }, []);
  return height;
}
