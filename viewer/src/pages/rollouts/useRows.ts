/** The rows for a filter and an order. While new ones are loading, the old ones stay. */

import { useEffect, useMemo, useReducer, useRef } from "preact/hooks";
import type { Filter } from "../../api";
import { useSource } from "../../source";
import type { Order } from "../../source";
import { Windows } from "./windows";

export interface Rows {
  /** What to show. */
  shown: Windows;
  /** What is loading or loaded for this filter and order. */
  latest: Windows;
  /** Whether these are still the rows of an earlier filter or order. */
  isStale: boolean;
}

export function useRows(run: string, filter: Filter, sort: string, order: Order, fields: string[]): Rows {
  const source = useSource();
  const [, redraw] = useReducer((round: number) => round + 1, 0);
  const key = JSON.stringify([run, filter, sort, order, fields]);
  const windows = useMemo(
    () =>
      new Windows(
        (offset, limit, signal) => source.rollouts(run, filter, sort, order, offset, limit, fields, signal),
        () => redraw(undefined),
      ),
    [key, source],
  );
  useEffect(() => () => windows.close(), [windows]);
  const shown = useRef(windows);
  if (windows.total !== null || shown.current.total === null) shown.current = windows;
  return {
    shown: shown.current,
    latest: windows,
    isStale: shown.current !== windows,
  };
}
