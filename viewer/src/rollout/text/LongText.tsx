/** Text that is cut if it is long, with a button that shows more. */

import { useMemo, useState } from "preact/hooks";
import { count } from "../../ui/format";
import { chunksOf } from "./chunks";
import { Markdown } from "./Markdown";
import { visible } from "./visible";

const FIRST = 8_000;
/** Chunks that each click adds. */
const MORE = 3;

interface Props {
  text: string;
  /** Characters that the server did not send. */
  omitted?: number;
  isMarkdown?: boolean;
  /** Characters that are shown at first. */
  first?: number;
}

export function LongText({ text, omitted = 0, isMarkdown = false, first = FIRST }: Props) {
  const [shown, setShown] = useState(1);
  const chunks = useMemo(() => chunksOf(text, first), [text, first]);
  const parts = chunks.slice(0, shown);
  const rest = chunks.slice(shown).reduce((sum, chunk) => sum + chunk.length, 0);
  return (
    <>
      {isMarkdown ? (
        parts.map((part, index) => <Markdown key={index} text={part} />)
      ) : (
        <div class="plain" dir="auto">
          {visible(parts.join(""))}
        </div>
      )}
      {rest > 0 && (
        <button type="button" class="show-more" onClick={() => setShown(shown + MORE)}>
          Show more ({count(rest)} characters)
        </button>
      )}
      {rest === 0 && omitted > 0 && (
        <p class="dim">{count(omitted)} more characters are in the file. “Raw JSON” has the whole text.</p>
      )}
    </>
  );
}
