/** A conversation as people read it. */

import { useEffect, useState } from "preact/hooks";
import type { Item } from "../../api";
import { JsonTree } from "../text/JsonTree";
import { visible } from "../text/visible";
import { Message } from "./Message";
import type { Shown } from "./options";
import { Reasoning } from "./Reasoning";
import { ToolCall } from "./ToolCall";

/** Items that are drawn at once; the others follow, so that a long conversation does not block the page. */
const BATCH = 40;

export function Conversation({ items, shown }: { items: readonly Item[]; shown: Shown }) {
  const drawn = useGrowing(items.length);
  return (
    <ol class="conversation">
      {items.slice(0, drawn).map((item, index) =>
        isShown(item, shown) ? (
          <li key={index} class="step" data-turn={item.turn}>
            {shown.metadata && startsTurn(items, index) && <p class="turn">Turn {item.turn}</p>}
            <ItemView item={item} shown={shown} />
          </li>
        ) : null,
      )}
    </ol>
  );
}

export function ItemView({ item, shown }: { item: Item; shown: Shown }) {
  if (item.kind === "message") return <Message item={item} shown={shown} />;
  if (item.kind === "reasoning") return <Reasoning text={item.text} isSummary={item.is_summary} shown={shown} />;
  if (item.kind === "tool") return <ToolCall item={item} shown={shown} />;
  return (
    <article class="item item-other">
      <header class="item-head">
        <h3>{visible(item.type)}</h3>
      </header>
      <JsonTree value={item.value} label={item.type} open={1} />
    </article>
  );
}

function isShown(item: Item, shown: Shown): boolean {
  if (item.kind === "reasoning") return shown.reasoning;
  return item.kind !== "tool" || shown.tools;
}

function startsTurn(items: readonly Item[], index: number): boolean {
  const turn = items[index]?.turn ?? null;
  return turn !== null && turn !== (items[index - 1]?.turn ?? null);
}

/** A number that grows to `total`, one batch per frame. */
function useGrowing(total: number): number {
  const [drawn, setDrawn] = useState(BATCH);
  useEffect(() => {
    if (drawn >= total) return;
    // A timer also runs in a tab in the background, other than requestAnimationFrame.
    const timer = setTimeout(() => setDrawn(drawn + Math.min(drawn, 5 * BATCH)), 0);
    return () => clearTimeout(timer);
  }, [drawn, total]);
  return drawn;
}
