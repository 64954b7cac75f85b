/** The filter that the pages share: words to search for, a chip for each part, and a menu that adds one. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useFacets } from "../data";
import { currentRoute, filterOf, useFilter } from "../state";
import { Button, Chip, ErrorNote, Menu, Spinner } from "../ui";
import { AddFilter } from "./AddFilter";
import { partsOf } from "./dimensions";

export function FilterBar({ runs }: { runs: string[] }) {
  const [filter, setFilter] = useFilter();
  const parts = partsOf(filter);
  const isEmpty = parts.length === 0 && !filter.words;
  return (
    <div class="filters" role="search" aria-label="Filter the rollouts">
      <WordsField />
      {parts.map((part) => (
        <Chip
          key={part.key}
          tone="accent"
          title={part.text}
          onRemove={() => setFilter(part.without)}
          removeLabel={`Remove ${part.text}`}
        >
          {part.text}
        </Chip>
      ))}
      <Menu label="+ Filter">{() => <FilterMenu run={runs[0] ?? null} />}</Menu>
      {!isEmpty && (
        <Button kind="quiet" onClick={() => setFilter({})}>
          Clear
        </Button>
      )}
    </div>
  );
}

function FilterMenu({ run }: { run: string | null }) {
  const [filter, setFilter] = useFilter();
  const facets = useFacets(run);
  if (facets.error) return <ErrorNote message={facets.error} onRetry={facets.reload} />;
  if (!facets.data) return <Spinner label="Loading the values" />;
  return <AddFilter facets={facets.data} filter={filter} onChange={setFilter} />;
}

const TYPING_PAUSE_MS = 350;

/** The search starts when the typing pauses, because it reads the files. */
function WordsField() {
  const [filter, setFilter] = useFilter();
  const [text, setText] = useState(filter.words ?? "");
  const shown = useRef(filter.words ?? "");
  useEffect(() => {
    if ((filter.words ?? "") === shown.current) return;
    shown.current = filter.words ?? "";
    setText(shown.current);
  }, [filter.words]);
  const apply = (words: string) => {
    if (words === shown.current) return;
    shown.current = words;
    // Not the filter of this render: other parts may have changed during the pause.
    const { words: _, ...rest } = filterOf(currentRoute().query);
    setFilter(words ? { ...rest, words } : rest);
  };
  useEffect(() => {
    const timer = setTimeout(() => apply(text), TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <input
      class="field search"
      type="search"
      aria-label="Words in the conversation"
      placeholder="Words in the conversation  /"
      maxLength={1000}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === "Enter") apply(text);
        if (event.key !== "Escape") return;
        // The browser empties the field by itself, without an event, so that the filter would stay.
        event.preventDefault();
        setText("");
        apply("");
        event.currentTarget.blur();
      }}
    />
  );
}
