/** Choose which repeats of a task are shown side by side. */

import { useState } from "preact/hooks";
import type { TaskPage } from "../../api";
import { Button, Chip, OutcomeMark, Reward } from "../../ui";
import { MOST_COLUMNS, presetsOf, resultOf } from "./choice";

interface Props {
  all: TaskPage["all"];
  chosen: readonly number[];
  onChange(chosen: number[]): void;
}

/** More repeats are chosen by their numbers or by their results. */
const MOST_BOXES = 32;

export function Chooser({ all, chosen, onChange }: Props) {
  const change = (repeats: number[]): void => onChange([...new Set(repeats)].sort((a, b) => a - b));
  return (
    <fieldset class="chooser">
      <legend>Repeats side by side, at most {MOST_COLUMNS}</legend>
      {all.length <= MOST_BOXES ? (
        <Boxes all={all} chosen={chosen} onChange={change} />
      ) : (
        <Chips all={all} chosen={chosen} onChange={change} />
      )}
      {all.length > 2 && <Presets all={all} onChange={change} />}
    </fieldset>
  );
}

function Boxes({ all, chosen, onChange }: Props) {
  return (
    <>
      {all.map((each) => {
        const { repeat, outcome, reward } = each;
        const isChosen = chosen.includes(repeat);
        const toggle = (): void =>
          onChange(isChosen ? chosen.filter((other) => other !== repeat) : [...chosen, repeat]);
        return (
          <label key={repeat} class={isChosen ? "chooser-box is-chosen" : "chooser-box"}>
            <input
              type="checkbox"
              checked={isChosen}
              disabled={!isChosen && chosen.length >= MOST_COLUMNS}
              onChange={toggle}
            />
            {outcome !== "scored" && <OutcomeMark outcome={outcome} />} {repeat}
            <span class="chooser-result">{reward === null ? outcome : <>reward <Reward value={reward} /></>}</span>
          </label>
        );
      })}
    </>
  );
}

function Chips({ all, chosen, onChange }: Props) {
  const results = new Map(all.map((each) => [each.repeat, resultOf(each)]));
  return (
    <>
      {chosen.map((repeat) => (
        <Chip
          key={repeat}
          onRemove={() => onChange(chosen.filter((other) => other !== repeat))}
          removeLabel={`Remove repeat ${repeat}`}
        >
          {repeat} <span class="chooser-result">{results.get(repeat) ?? "unknown"}</span>
        </Chip>
      ))}
      <AddRepeat
        isKnown={(repeat) => results.has(repeat)}
        isFull={chosen.length >= MOST_COLUMNS}
        onAdd={(repeat) => onChange([...chosen, repeat])}
      />
    </>
  );
}

interface AddProps {
  isKnown(repeat: number): boolean;
  isFull: boolean;
  onAdd(repeat: number): void;
}

function AddRepeat({ isKnown, isFull, onAdd }: AddProps) {
  const [text, setText] = useState("");
  const repeat = /^\d+$/.test(text) ? Number(text) : null;
  const isUnknown = repeat !== null && !isKnown(repeat);
  const add = (): void => {
    if (repeat === null || isUnknown || isFull) return;
    onAdd(repeat);
    setText("");
  };
  return (
    <span class="chooser-add">
      <input
        class="field"
        inputMode="numeric"
        aria-label="Number of a repeat"
        placeholder="Repeat"
        value={text}
        onInput={(event) => setText(event.currentTarget.value.trim())}
        onKeyDown={(event) => event.key === "Enter" && add()}
      />
      <Button onClick={add} disabled={repeat === null || isUnknown || isFull}>
        Add
      </Button>
      <span class="dim" role="status">
        {isUnknown && `There is no repeat ${repeat}.`}
      </span>
    </span>
  );
}

function Presets({ all, onChange }: Pick<Props, "all" | "onChange">) {
  const presets = presetsOf(all);
  return (
    <select
      class="field"
      aria-label="Show repeats by their result"
      value=""
      onChange={(event) => onChange(presets[Number(event.currentTarget.value)]?.repeats ?? [])}
    >
      <option value="" disabled>
        Show…
      </option>
      {presets.map(({ label }, index) => (
        <option key={index} value={index}>
          {label}
        </option>
      ))}
    </select>
  );
}
