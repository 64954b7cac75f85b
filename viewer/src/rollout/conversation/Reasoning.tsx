/** Reasoning: folded and dimmed. */

import { count } from "../../ui/format";
import { LongText } from "../text/LongText";
import type { Shown } from "./options";

export function Reasoning({ text, isSummary, shown }: { text: string; isSummary: boolean; shown: Shown }) {
  return (
    <details class="reasoning" open={shown.unfolded}>
      <summary>
        {isSummary ? "Summary of the reasoning" : "Reasoning"}
        <span class="item-size">{count(text.length)} characters</span>
      </summary>
      <LongText key={String(shown.raw)} text={text} isMarkdown={!shown.raw} />
    </details>
  );
}
