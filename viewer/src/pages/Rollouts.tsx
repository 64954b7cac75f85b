/** Every rollout of a run that the filter selects, as a table of up to millions of rows. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RolloutRow } from "../api";
import { messageOf, useCurrentRun, useFacets } from "../data";
import { setStar } from "../notes/saving";
import { useSource } from "../source";
import { changeQuery, href, navigate, useRoute, viewOf } from "../state";
import { Empty, ErrorNote, Problems, Progress, Spinner, useShortcuts } from "../ui";
import { amount } from "../ui/format";
import { ColumnsMenu } from "./rollouts/ColumnsMenu";
import { columnOf, columnsOf, fieldsOf, usualColumns } from "./rollouts/columns";
import { Grid } from "./rollouts/Grid";
import { SelectionMenu } from "./rollouts/SelectionMenu";
import { useRows } from "./rollouts/useRows";
import { useSelectedRow } from "./rollouts/useSelectedRow";
import "./rollouts.css";

export default function Rollouts({ run }: { run: string }) {
  const source = useSource();
  const { query } = useRoute();
  const { filter, sort, order, columns: chosen } = viewOf(query);
  const isNarrow = useIsNarrow();
  const keys = chosen.length > 0 ? chosen : usualColumns(isNarrow);
  const keyText = JSON.stringify(keys);
  const facets = useFacets(run);
  const highest = Math.max(1, facets.data?.reward?.max ?? 1);
  const columns = useMemo(() => columnsOf(keys, isNarrow, highest), [keyText, isNarrow, highest]);
  const { shown, latest, isStale } = useRows(run, filter, sort, order, fieldsOf(keys));
  useRefresh(latest.refresh.bind(latest));
  const { selected, select, keep } = useSelectedRow();
  const [starError, setStarError] = useState<string | null>(null);
  const total = shown.total ?? 0;
  const onSee = useCallback((first: number, last: number) => latest.show(first, last), [latest]);

  const addressOf = (row: RolloutRow, index: number) =>
    href({ page: "rollout", run, task: row.task, repeat: row.repeat }, { row: index });
  const open = (index: number) => {
    const row = shown.row(index);
    if (!row) return;
    keep(index);
    navigate(addressOf(row, index));
  };
  const star = (index: number) => {
    const row = shown.row(index);
    if (!row) return;
    shown.replace(index, { ...row, star: !row.star });
    setStar(source, run, row.task, row.repeat, !row.star).then(
      () => setStarError(null),
      (error: unknown) => {
        shown.replace(index, row);
        setStarError(messageOf(error));
      },
    );
  };
  const sortBy = (key: string) => changeQuery((changed) => setOrder(changed, key, sort, order));
  useTableKeys({ total, selected, select, open, star: source.isReport ? null : star });

  return (
    <>
      <div class="rollouts-head">
        <h1 class="hidden">Rollouts</h1>
        <span role="status">{isStale || shown.total === null ? "…" : amount(total, "rollout")}</span>
        <IndexingNote />
        <span class="rollouts-tools">
          <ColumnsMenu facets={facets} keys={keys} isUsual={chosen.length === 0} />
          <SelectionMenu run={run} filter={filter} total={total} />
        </span>
      </div>
      {latest.error && <ErrorNote message={latest.error} onRetry={() => latest.refreshNow()} />}
      {starError && <ErrorNote message={`The star was not saved: ${starError}`} />}
      <Grid
        total={total}
        rowAt={(index) => shown.row(index)}
        onSee={onSee}
        columns={columns}
        sort={sort}
        order={order}
        onSort={sortBy}
        selected={selected}
        addressOf={addressOf}
        onOpen={open}
        onStar={source.isReport ? undefined : star}
        isStale={isStale}
        orderKey={JSON.stringify([run, filter, sort, order])}
      />
      {shown.total === null && !latest.error && (
        <Spinner label={filter.words ? "Searching the conversations" : "Loading the rollouts"} />
      )}
      {shown.total === 0 && <NoRollouts isFiltered={Object.keys(filter).length > 0} />}
    </>
  );
}

/** A second click on a column turns its order around; numbers begin with the highest, but tasks with the first. */
function setOrder(query: URLSearchParams, key: string, sort: string, order: string): void {
  const first = columnOf(key).isNumber ? "desc" : "asc";
  const flipped = order === "asc" ? "desc" : "asc";
  query.set("sort", key);
  query.set("order", key === sort ? flipped : first);
  query.delete("row");
}

/** Load the visible rows again when the run has grown, at most as often as the shell looks at the run. */
function useRefresh(refresh: () => void): void {
  const { data } = useCurrentRun();
  const size = data && `${data.scored} ${data.failed} ${data.unresolved} ${data.indexed.bytes}`;
  const seen = useRef(size);
  useEffect(() => {
    if (seen.current !== null && seen.current !== size) refresh();
    seen.current = size;
  }, [size]);
}

interface TableKeys {
  total: number;
  selected: number | null;
  select(index: number): void;
  open(index: number): void;
  star: ((index: number) => void) | null;
}

const PAGE_ROWS = 20;

function useTableKeys({ total, selected, select, open, star }: TableKeys): void {
  // The table takes the focus, so that Enter opens the row and screen readers read it.
  const go = (row: number) => {
    if (total === 0) return;
    select(Math.max(0, Math.min(total - 1, row)));
    document.querySelector<HTMLElement>(".grid")?.focus({ preventScroll: true });
  };
  /** The first key press selects the first row. */
  const move = (by: number) => go(selected === null ? 0 : selected + by);
  useShortcuts([
    { keys: ["j", "ArrowDown"], label: "Next rollout", act: () => move(1) },
    { keys: ["k", "ArrowUp"], label: "Previous rollout", act: () => move(-1) },
    { keys: ["PageDown"], label: `${PAGE_ROWS} rollouts down`, act: () => move(PAGE_ROWS) },
    { keys: ["PageUp"], label: `${PAGE_ROWS} rollouts up`, act: () => move(-PAGE_ROWS) },
    { keys: ["Home"], label: "First rollout", act: () => go(0) },
    { keys: ["End"], label: "Last rollout", act: () => go(total - 1) },
    { keys: ["Enter"], label: "Open the rollout", act: () => selected !== null && open(selected) },
    ...(star ? [{ keys: ["s"], label: "Add or remove a star", act: () => selected !== null && star(selected) }] : []),
  ]);
}

function IndexingNote() {
  const { data } = useCurrentRun();
  if (!data || data.indexed.bytes >= data.indexed.of) return null;
  const label = "Still reading the results: more rollouts will appear.";
  return <Progress value={data.indexed.bytes} of={data.indexed.of} label={label} />;
}

function NoRollouts({ isFiltered }: { isFiltered: boolean }) {
  const { data } = useCurrentRun();
  return (
    <div class="rollouts-empty">
      <Empty title={isFiltered ? "No rollout matches the filter" : "This run has no rollouts yet"}>
        {isFiltered && <p>Remove a part of the filter above to see more.</p>}
      </Empty>
      {data && <Problems problems={data.problems} />}
    </div>
  );
}

const narrow = matchMedia("(max-width: 640px)");

function useIsNarrow(): boolean {
  const [isNarrow, setIsNarrow] = useState(narrow.matches);
  useEffect(() => {
    const listener = () => setIsNarrow(narrow.matches);
    narrow.addEventListener("change", listener);
    return () => narrow.removeEventListener("change", listener);
  }, []);
  return isNarrow;
}
