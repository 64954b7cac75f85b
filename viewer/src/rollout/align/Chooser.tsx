/** Choose which rollouts are shown side by side. */

import type { TaskPage } from "../../api";
import { OutcomeMark } from "../../ui";
import { number } from "../../ui/format";

interface Props {
  title: string;
  all: TaskPage["all"];
  /** The repeats whose conversations were sent. */
  loaded: ReadonlySet<number>;
  chosen: readonly number[];
  onChange(chosen: number[]): void;
}

/** More columns are too narrow to read. */
const MOST_COLUMNS = 6;

export function Chooser({ title, all, loaded, chosen, onChange }: Props) {
  const toggle = (repeat: number): void =>
    onChange(
      chosen.includes(repeat) ? chosen.filter((each) => each !== repeat) : [...chosen, repeat].sort((a, b) => a - b),
    );
  return (
    <fieldset class="chooser">
      <legend>{title}</legend>
      {all.map(({ repeat, outcome, reward }) => {
        const isChosen = chosen.includes(repeat);
        const isOff = !loaded.has(repeat) || (!isChosen && chosen.length >= MOST_COLUMNS);
        return (
          <label
            key={repeat}
            class={isChosen ? "is-chosen" : undefined}
            title={isOff ? reasonOf(loaded.has(repeat)) : undefined}
          >
            <input type="checkbox" checked={isChosen} disabled={isOff} onChange={() => toggle(repeat)} />
            <OutcomeMark outcome={outcome} /> {repeat}
            <span class="chooser-reward">{reward === null ? outcome : number(reward)}</span>
          </label>
        );
      })}
    </fieldset>
  );
}

function reasonOf(isLoaded: boolean): string {
  return isLoaded
    ? `At most ${MOST_COLUMNS} fit next to each other.`
    : "Open it from the table: only the first repeats are loaded here.";
}
