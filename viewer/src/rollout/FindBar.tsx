/** Search in the conversation, and what of it is shown. */

import type { RefObject } from "preact";
import { useState } from "preact/hooks";
import { useFilter } from "../state";
import { Button } from "../ui";
import type { Shown } from "./conversation/options";
import { useFind } from "./useFind";

const TOGGLES: [keyof Shown, string][] = [
  ["tools", "Tool calls"],
  ["reasoning", "Reasoning"],
  ["metadata", "Metadata"],
  ["unfolded", "Unfold"],
  ["raw", "Raw text"],
];

interface Props {
  root: RefObject<HTMLElement | null>;
  shown: Shown;
  onToggle(name: keyof Shown): void;
}

export function FindBar({ root, shown, onToggle }: Props) {
  const [filter] = useFilter();
  const [typed, setTyped] = useState<string | null>(null);
  // Until the reader types, the words of the filter are marked.
  const words = typed ?? filter.words ?? "";
  const find = useFind(root, words);
  const press = (event: KeyboardEvent): void => {
    if (event.key === "Enter") find.step(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    // The browser empties the field by itself, without an event, so that the marks would stay.
    event.preventDefault();
    setTyped("");
    (event.currentTarget as HTMLElement).blur();
  };
  return (
    <div class="find">
      <div class="find-search" role="search">
        <input
          type="search"
          class="field"
          placeholder="Find in this rollout (/)"
          aria-label="Find in this rollout"
          value={words}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={press}
        />
        {words !== "" && (
          <>
            <span class="dim" role="status">
              {find.current > 0 ? `${find.current} of ${find.hits}` : `${find.hits} found`}
            </span>
            <Button
              kind="quiet"
              label="Previous hit (Shift+Enter)"
              disabled={find.hits === 0}
              onClick={() => find.step(-1)}
            >
              ↑
            </Button>
            <Button kind="quiet" label="Next hit (Enter)" disabled={find.hits === 0} onClick={() => find.step(1)}>
              ↓
            </Button>
          </>
        )}
      </div>
      <div class="find-toggles" role="group" aria-label="What is shown">
        {TOGGLES.map(([name, label]) => (
          <Button key={name} pressed={shown[name]} onClick={() => onToggle(name)}>
            {label}
          </Button>
        ))}
      </div>
    </div>
  );
}
