/** JSON as a tree that can be folded. Small values are open and complete, so that a search finds their text. */

import { useMemo, useState } from "preact/hooks";
import type { Json } from "../../api";
import { count } from "../../ui/format";
import { CopyButton } from "../../ui/Copy";
import { visible } from "./visible";

const PAGE = 100;
const LONG_TEXT = 2_000;

interface Props {
  value: Json;
  /** What the value is, for screen readers. */
  label: string;
  /** Levels that are open at first. */
  open?: number;
}

export function JsonTree({ value, label, open = 2 }: Props) {
  const text = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return (
    <div class="json" role="group" aria-label={label}>
      <CopyButton text={text} />
      <Value value={value} name={null} open={open} />
    </div>
  );
}

function Value({ value, name, open }: { value: Json; name: string | null; open: number }) {
  if (value !== null && typeof value === "object" && Object.keys(value).length > 0) {
    return <Branch value={value} name={name} open={open} />;
  }
  return (
    <div class="json-row">
      <Name name={name} />
      <Scalar value={value} />
    </div>
  );
}

function Branch({
  value,
  name,
  open,
}: {
  value: Exclude<Json, null | boolean | number | string>;
  name: string | null;
  open: number;
}) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(PAGE);
  const entries = Object.entries(value);
  return (
    <details class="json-branch" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Name name={name} />
        <span class="json-size">
          {Array.isArray(value) ? `[${count(entries.length)}]` : `{${count(entries.length)}}`}
        </span>
        {!isOpen && <span class="json-preview">{preview(value)}</span>}
      </summary>
      {isOpen && (
        <div class="json-children">
          {entries.slice(0, shown).map(([key, child]) => (
            <Value key={key} name={key} value={child} open={open - 1} />
          ))}
          {entries.length > shown && (
            <button type="button" class="show-more" onClick={() => setShown(shown + PAGE * 10)}>
              Show {count(Math.min(entries.length - shown, PAGE * 10))} more
            </button>
          )}
        </div>
      )}
    </details>
  );
}

function Name({ name }: { name: string | null }) {
  return name === null ? null : <span class="json-name">{visible(name)}: </span>;
}

function Scalar({ value }: { value: Json }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string")
    return <span class={`json-${value === null ? "null" : typeof value}`}>{JSON.stringify(value)}</span>;
  const part = isWhole ? value : value.slice(0, LONG_TEXT);
  return (
    <>
      <span class="json-string" dir="auto">{`"${visible(part)}${part === value ? '"' : ""}`}</span>
      {part !== value && (
        <button type="button" class="show-more" onClick={() => setWhole(true)}>
          Show {count(value.length - part.length)} more characters
        </button>
      )}
    </>
  );
}

/** The beginning of the JSON, without serialising all of a large value. */
function preview(value: Json): string {
  const parts: string[] = [];
  let room = 90;
  const add = (text: string): void => {
    parts.push(text);
    room -= text.length;
  };
  const walk = (here: Json): void => {
    if (room <= 0) return;
    if (here === null || typeof here !== "object")
      return add(JSON.stringify(typeof here === "string" ? here.slice(0, 60) : here));
    const isList = Array.isArray(here);
    add(isList ? "[" : "{");
    let isFirst = true;
    for (const key in here) {
      if (room <= 0) break;
      add(isFirst ? "" : ", ");
      isFirst = false;
      if (!isList) add(`${key}: `);
      walk((here as { [key: string]: Json })[key] ?? null);
    }
    add(isList ? "]" : "}");
  };
  walk(value);
  return visible(parts.join("").slice(0, 90)) + (room <= 0 ? "…" : "");
}
