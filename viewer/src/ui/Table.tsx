/** A small table that sorts in the page. The table of rollouts is its own, because it can have a million rows. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<Row> {
  key: string;
  label: string;
  /** What the column means; its tooltip. */
  hint?: string;
  isNumber?: boolean;
  /** The value to sort by; columns without it cannot be sorted. */
  sortBy?: (row: Row) => number | string | null;
  render(row: Row): ComponentChildren;
}

export interface TableProps<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf(row: Row): string;
  sort?: { key: string; isDescending: boolean };
  /** Called instead of keeping the order here. */
  onSort?: (sort: { key: string; isDescending: boolean }) => void;
}

export function Table<Row>({ caption, columns, rows, keyOf, sort, onSort }: TableProps<Row>) {
  const [own, setOwn] = useState<{ key: string; isDescending: boolean } | undefined>(undefined);
  const order = sort ?? own;
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label={caption}>
      <table class="table">
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <HeaderCell key={column.key} column={column} order={order} onSort={onSort ?? setOwn} />
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted(rows, columns, order).map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <td key={column.key} class={column.isNumber ? "number" : undefined}>
                  {column.render(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface HeaderCellProps {
  column: { key: string; label: string; hint?: string; isNumber?: boolean; sortBy?: unknown };
  order: { key: string; isDescending: boolean } | undefined;
  onSort(sort: { key: string; isDescending: boolean }): void;
}

/** A header; numbers sort from high to low at first. */
export function HeaderCell({ column, order, onSort }: HeaderCellProps) {
  const isSorted = order?.key === column.key;
  const direction = isSorted ? (order.isDescending ? "descending" : "ascending") : "none";
  const flipped = isSorted ? !order.isDescending : column.isNumber === true;
  return (
    <th
      scope="col"
      class={column.isNumber ? "number" : undefined}
      title={column.hint}
      aria-sort={column.sortBy ? direction : undefined}
    >
      {column.sortBy ? (
        <button type="button" class="sort" onClick={() => onSort({ key: column.key, isDescending: flipped })}>
          {column.label}
          <span aria-hidden="true" class="sort-arrow">
            {isSorted ? (order.isDescending ? "↓" : "↑") : ""}
          </span>
        </button>
      ) : (
        column.label
      )}
    </th>
  );
}

/** Rows in order; missing values are last in both directions. */
export function sorted<Row>(
  rows: Row[],
  columns: Column<Row>[],
  order: { key: string; isDescending: boolean } | undefined,
): Row[] {
  const valueOf = columns.find((column) => column.key === order?.key)?.sortBy;
  if (!order || !valueOf) return rows;
  const sign = order.isDescending ? -1 : 1;
  return [...rows].sort((one, two) => {
    const [a, b] = [valueOf(one), valueOf(two)];
    if (a === null || b === null) return (a === null ? 1 : 0) - (b === null ? 1 : 0);
    if (typeof a === "string" || typeof b === "string")
      return sign * String(a).localeCompare(String(b), "en", { numeric: true });
    return sign * (a - b);
  });
}
