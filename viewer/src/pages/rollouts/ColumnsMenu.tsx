/** Which columns the table has, and in which order. */

import { useState } from "preact/hooks";
import type { Facets } from "../../api";
import type { Loaded } from "../../data";
import { changeQuery } from "../../state";
import { Button, ErrorNote, Menu, MenuItem, Spinner } from "../../ui";
import { choicesOf } from "./columns";

export interface ColumnsMenuProps {
  facets: Loaded<Facets>;
  keys: string[];
  isUsual: boolean;
}

export function ColumnsMenu(props: ColumnsMenuProps) {
  return (
    <Menu label="Columns" alignRight>
      {() => <Choices {...props} />}
    </Menu>
  );
}

function Choices({ facets, keys, isUsual }: ColumnsMenuProps) {
  const [text, setText] = useState("");
  const choices = choicesOf(facets.data).filter(({ label }) => label.toLowerCase().includes(text.toLowerCase()));
  const toggle = (key: string) =>
    setColumns(keys.includes(key) ? keys.filter((each) => each !== key) : [...keys, key]);
  const item = ({ key, label }: { key: string; label: string }) => (
    <MenuItem key={key} checked={keys.includes(key)} onClick={() => toggle(key)}>
      {label}
    </MenuItem>
  );
  return (
    <div class="filter-panel">
      <input
        class="field"
        aria-label="Find a column"
        placeholder="Find a column or field"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {!isUsual && (
        <Button kind="quiet" onClick={() => setColumns([])}>
          Show the usual columns
        </Button>
      )}
      {choices.filter(({ isField }) => !isField).map(item)}
      <p class="menu-title">Fields of rows and results</p>
      {choices.filter(({ isField }) => isField).map(item)}
      {facets.error && <ErrorNote message={facets.error} onRetry={facets.reload} />}
      {facets.isLoading && !facets.error && <Spinner label="Loading the fields" />}
    </div>
  );
}

/** The prompt stays last, because it takes the rest of the width. */
function setColumns(keys: string[]): void {
  const inOrder = keys.includes("title") ? [...keys.filter((key) => key !== "title"), "title"] : keys;
  changeQuery((query) => {
    query.delete("column");
    for (const key of inOrder) query.append("column", key);
  });
}
