/** The row that the keys act on, kept in the address. */

import { useEffect, useRef, useState } from "preact/hooks";
import { changeQuery, numberOf, useRoute } from "../../state";

/** Browsers refuse more than about 200 changes of the address in ten seconds, and a held key makes more. */
const PAUSE_MS = 250;

export interface SelectedRow {
  selected: number | null;
  select(row: number): void;
  /** Select a row and have it in the address at once, because the page is about to be left. */
  keep(row: number): void;
}

export function useSelectedRow(): SelectedRow {
  const { query } = useRoute();
  const inAddress = numberOf(query.get("row"));
  const [selected, setSelected] = useState(inAddress);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const cancel = () => clearTimeout(timer.current);
  // What was written here may be older than the selection; only a change from elsewhere replaces it.
  const written = useRef(inAddress);
  useEffect(() => {
    if (inAddress === written.current) return;
    written.current = inAddress;
    cancel();
    setSelected(inAddress);
  }, [inAddress]);
  useEffect(() => cancel, []);
  const write = (row: number) => {
    written.current = row;
    changeQuery((changed) => changed.set("row", String(row)));
  };
  const select = (row: number) => {
    setSelected(row);
    cancel();
    timer.current = setTimeout(() => write(row), PAUSE_MS);
  };
  const keep = (row: number) => {
    setSelected(row);
    cancel();
    write(row);
  };
  return { selected, select, keep };
}
