/** A tool call next to its result. */

import type { Item, Json, Part } from "../../api";
import { seconds } from "../../ui/format";
import { JsonTree } from "../text/JsonTree";
import { LongText } from "../text/LongText";
import { visible } from "../text/visible";
import { Parts } from "./Message";
import type { Shown } from "./options";

type ToolItem = Extract<Item, { kind: "tool" }>;

export function ToolCall({ item, shown }: { item: ToolItem; shown: Shown }) {
  return (
    <article class={`item item-tool${item.failed ? " is-failed" : ""}`}>
      <header class="item-head">
        <h3>
          tool call <code>{visible(item.name)}</code>
        </h3>
        {item.failed && <span class="tool-failed">✕ failed</span>}
        {shown.metadata && item.seconds !== null && <span class="item-size">{seconds(item.seconds)}</span>}
        {shown.metadata && item.call_id && <span class="item-size item-id">{visible(item.call_id)}</span>}
      </header>
      <Arguments value={item.arguments} shown={shown} />
      <Result parts={item.result} shown={shown} />
    </article>
  );
}

function Arguments({ value, shown }: { value: Json; shown: Shown }) {
  if (typeof value === "string") {
    // Arguments that are not JSON: what the model wrote.
    return <LongText text={value} />;
  }
  if (shown.raw) return <LongText text={JSON.stringify(value)} />;
  if (value !== null && typeof value === "object" && Object.keys(value).length === 0) {
    return <p class="dim">no arguments</p>;
  }
  return <JsonTree value={value} label="arguments" open={isLarge(value) ? 0 : 2} />;
}

function isLarge(value: Json): boolean {
  return JSON.stringify(value).length > 600;
}

function Result({ parts, shown }: { parts: Part[] | null; shown: Shown }) {
  if (parts === null) return <p class="tool-result dim">No result was recorded.</p>;
  const only = parts.length === 1 ? parts[0] : undefined;
  return (
    <div class="tool-result">
      <p class="tool-result-label">result</p>
      {only?.kind === "text" ? (
        <ResultText text={only.text} omitted={only.omitted} shown={shown} />
      ) : (
        <Parts parts={parts} shown={shown} />
      )}
    </div>
  );
}

const FIRST_OF_RESULT = 3_000;
const LOOKS_LIKE_MARKDOWN = /^#{1,4} \S|\n#{1,4} \S|```|\n\|[ :|-]+\|\n/;

function ResultText({ text, omitted, shown }: { text: string; omitted: number; shown: Shown }) {
  const value = shown.raw || omitted > 0 ? undefined : parsed(text);
  if (value !== undefined) return <JsonTree value={value} label="result" open={isLarge(value) ? 1 : 3} />;
  if (text === "") return <p class="dim">empty</p>;
  const isMarkdown = !shown.raw && LOOKS_LIKE_MARKDOWN.test(text.slice(0, 20_000));
  return (
    <LongText key={String(shown.raw)} text={text} omitted={omitted} isMarkdown={isMarkdown} first={FIRST_OF_RESULT} />
  );
}

/** The objects and lists that tools return as text; numbers and words stay text. */
function parsed(text: string): Json | undefined {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
