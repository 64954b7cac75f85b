/** The table of runs, grouped by folder; each row opens to show its settings. */

import { Fragment } from "preact";
import { useState } from "preact/hooks";
import type { Run } from "../../api";
import { amount } from "../../ui/format";
import { HeaderCell } from "../../ui/Table";
import { COLUMNS, folderOf } from "./columns";
import { RunDetails } from "./RunDetails";

type Sort = { key: string; isDescending: boolean };

export interface RunTableProps {
  runs: Run[];
  picked: string[];
  onPick(id: string, isPicked: boolean): void;
  sort: Sort;
  onSort(sort: Sort): void;
}

export function RunTable({ runs, picked, onPick, sort, onSort }: RunTableProps) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) =>
    setOpen((old) => new Set(old.has(id) ? [...old].filter((each) => each !== id) : [...old, id]));
  const groups = groupsOf(runs);
  return (
    <table class="table runs">
      <caption class="hidden">Runs</caption>
      <thead>
        <tr>
          <th scope="col">
            <span class="hidden">Choose</span>
          </th>
          {COLUMNS.map((column) => (
            <HeaderCell key={column.key} column={column} order={sort} onSort={onSort} />
          ))}
          <th scope="col">
            <span class="hidden">Settings</span>
          </th>
        </tr>
      </thead>
      {groups.map(([folder, members]) => (
        <tbody key={folder}>
          {folder && (
            <tr class="runs-folder">
              <th colSpan={COLUMNS.length + 2} scope="rowgroup">
                {folder}/
              </th>
            </tr>
          )}
          {members.map((run) => (
            <Fragment key={run.id}>
              <RunRow
                run={run}
                isPicked={picked.includes(run.id)}
                onPick={onPick}
                isOpen={open.has(run.id)}
                onToggle={toggle}
              />
              {open.has(run.id) && (
                <tr class="runs-details">
                  <td colSpan={COLUMNS.length + 2}>
                    <RunDetails run={run} />
                  </td>
                </tr>
              )}
            </Fragment>
          ))}
        </tbody>
      ))}
    </table>
  );
}

/** The runs by folder, in the order of each folder's first run; those outside of folders come first. */
function groupsOf(runs: Run[]): [string, Run[]][] {
  const groups = [...Map.groupBy(runs, (run) => folderOf(run).folder)];
  return groups.sort(([one], [two]) => Number(one !== "") - Number(two !== ""));
}

interface RunRowProps {
  run: Run;
  isPicked: boolean;
  onPick(id: string, isPicked: boolean): void;
  isOpen: boolean;
  onToggle(id: string): void;
}

function RunRow({ run, isPicked, onPick, isOpen, onToggle }: RunRowProps) {
  return (
    <tr class={isPicked ? "is-picked" : undefined}>
      <td class="runs-pick">
        <input
          type="checkbox"
          aria-label={`Compare ${run.name}`}
          checked={isPicked}
          onChange={(event) => onPick(run.id, event.currentTarget.checked)}
        />
      </td>
      {COLUMNS.map((column) => (
        <td
          key={column.key}
          class={column.isNumber ? `number runs-${column.key}` : `runs-${column.key}`}
          data-label={column.label}
        >
          {column.render(run)}
        </td>
      ))}
      <td class="runs-more">
        <button
          type="button"
          class="button button-quiet"
          aria-expanded={isOpen}
          title="Settings"
          onClick={() => onToggle(run.id)}
        >
          <span class="hidden">Settings of {run.name}</span>
          {run.problems.length > 0 && (
            <span class="outcome-failed" title={amount(run.problems.length, "problem")}>
              ⚠ {run.problems.length}
            </span>
          )}
          <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
        </button>
      </td>
    </tr>
  );
}
