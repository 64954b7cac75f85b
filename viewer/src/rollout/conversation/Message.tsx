/** A message with its texts, images and sounds. */

import type { Item, Part } from "../../api";
import { count } from "../../ui/format";
import { LongText } from "../text/LongText";
import { Media } from "./Media";
import type { Shown } from "./options";
import { Reasoning } from "./Reasoning";

type MessageItem = Extract<Item, { kind: "message" }>;

/** Longer system messages are folded. */
const LONG_SYSTEM = 600;

export function Message({ item, shown }: { item: MessageItem; shown: Shown }) {
  const length = item.parts.reduce((sum, part) => sum + lengthOf(part), 0);
  const isInstruction = item.role === "system" || item.role === "developer";
  const isFolded = isInstruction && length > LONG_SYSTEM && !shown.unfolded;
  const content = <Parts parts={item.parts} shown={shown} isAnswer={item.role === "assistant"} />;
  return (
    <article class={`item item-${isInstruction ? "system" : item.role}`}>
      <header class="item-head">
        <h3>{item.role}</h3>
        {shown.metadata && length > 0 && <span class="item-size">{count(length)} characters</span>}
      </header>
      {isInstruction && length > LONG_SYSTEM ? (
        <details open={!isFolded}>
          <summary>{firstLine(item.parts)}</summary>
          {content}
        </details>
      ) : (
        content
      )}
    </article>
  );
}

function lengthOf(part: Part): number {
  if (part.kind === "text") return part.text.length + part.omitted;
  return part.kind === "refusal" ? part.text.length : 0;
}

function firstLine(parts: Part[]): string {
  const first = parts.find((part) => part.kind === "text");
  const line = first?.text.trim().split("\n", 1)[0] ?? "";
  return line.length > 100 ? `${line.slice(0, 100)}…` : line;
}

export function Parts({ parts, shown, isAnswer = false }: { parts: Part[]; shown: Shown; isAnswer?: boolean }) {
  if (parts.length === 0) return <p class="dim">empty</p>;
  return (
    <>
      {parts.map((part, index) => (
        <PartView key={index} part={part} shown={shown} isAnswer={isAnswer} />
      ))}
    </>
  );
}

function PartView({ part, shown, isAnswer }: { part: Part; shown: Shown; isAnswer: boolean }) {
  if (part.kind === "image" || part.kind === "audio") return <Media part={part} />;
  if (part.kind === "refusal") {
    return (
      <div class="refusal">
        <strong>Refused: </strong>
        <LongText text={part.text} />
      </div>
    );
  }
  const [thought, answer] = isAnswer && !shown.raw ? splitThought(part.text) : [null, part.text];
  return (
    <>
      {thought !== null && shown.reasoning && <Reasoning text={thought} isSummary={false} shown={shown} />}
      <LongText key={String(shown.raw)} text={answer} omitted={part.omitted} isMarkdown={!shown.raw} />
    </>
  );
}

/** Models without a field for reasoning write it into the text. Chat templates may have opened the tag before it. */
function splitThought(text: string): [string | null, string] {
  const end = text.indexOf("</think>");
  if (end < 0) return [null, text];
  const thought = text.slice(0, end).replace(/^\s*<think>/, "");
  return [thought.trim(), text.slice(end + "</think>".length).trimStart()];
}
