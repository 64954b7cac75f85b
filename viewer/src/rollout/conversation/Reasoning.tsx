/** Reasoning: dimmed, and folded if it is long. */

import { count } from "../../ui/format";
import { LongText } from "../text/LongText";
import type { Shown } from "./options";

const LONG = 600;

export function Reasoning({ text, isSummary, shown }: { text: string; isSummary: boolean; shown: Shown }) {
  return (
    <details class="reasoning" open={shown.unfolded || text.length <= LONG}>
      <summary>
        Reasoning
        <span class="item-size">
          {count(text.length)} characters{isSummary && shown.metadata && ", from the field “summary”"}
        </span>
      </summary>
      <LongText key={String(shown.raw)} text={text} isMarkdown={!shown.raw} />
    </details>
  );
}
