/** The tokens of a sequence as text: each is tinted by its probability. Without their texts, those of the turns. */

import { useState } from "preact/hooks";
import { WarnNote } from "../../ui";
import { amount, count, number, percent } from "../../ui/format";
import { visible } from "../text/visible";
import { segmentsOf, shadeOf } from "./cells";
import type { Segment, Sequence } from "./cells";

/** More spans at once make the page slow. */
const SLICE = 3000;

export function TokenText({ sequence }: { sequence: Sequence }) {
  const [most, setMost] = useState(SLICE);
  const segments = segmentsOf(sequence).filter(({ start }) => start < most);
  return (
    <div class="token-text">
      {sequence.texts === null && (
        <WarnNote>
          The texts of the turns, because no tokenizer is known. To see each token, pass <code>--tokenizer</code> with the
          folder of a tokenizer, or with the address of an engine.
        </WarnNote>
      )}
      {segments.map((segment) => (
        <section key={segment.start} aria-label={segment.label}>
          <h3>
            {segment.label} <span class="dim">{amount(segment.end - segment.start, "token")}</span>
          </h3>
          {sequence.texts === null ? (
            <TurnText sequence={sequence} segment={segment} />
          ) : (
            <p dir="auto">
              {sequence.ids.slice(segment.start, Math.min(segment.end, most)).map((_, at) => (
                <Token key={at} sequence={sequence} at={segment.start + at} />
              ))}
            </p>
          )}
        </section>
      ))}
      {most < sequence.ids.length && (
        <button type="button" class="show-more" onClick={() => setMost(most + SLICE)}>
          Show {count(Math.min(SLICE, sequence.ids.length - most))} more of {count(sequence.ids.length)} tokens
        </button>
      )}
    </div>
  );
}

function TurnText({ sequence, segment }: { sequence: Sequence; segment: Segment }) {
  const turn = sequence.turns.find(({ start }) => start === segment.start);
  if (turn === undefined) return <p class="dim">Not sampled. The conversation has its text.</p>;
  const known = sequence.logprobs.slice(turn.start, turn.end).flatMap((each) => each ?? []);
  const mean = known.length > 0 ? known.reduce((sum, each) => sum + each, 0) / known.length : null;
  return (
    <p dir="auto" class={mean === null ? "" : `token shade-${shadeOf(mean)}`} title={`mean log-probability ${number(mean)}`}>
      {visible(turn.text) || <span class="dim">The record does not say what this turn wrote.</span>}
    </p>
  );
}

/** On one line, line breaks are marks. */
export function Token({ sequence, at, isOneLine = false }: { sequence: Sequence; at: number; isOneLine?: boolean }) {
  const logprob = sequence.logprobs[at] ?? null;
  const id = sequence.ids[at];
  const text = sequence.texts?.[at] ?? String(id);
  const odds = logprob === null ? "not sampled" : `log-probability ${logprob.toFixed(3)}, ${percent(Math.exp(logprob))}`;
  return (
    <span
      class={`token ${logprob === null ? "is-context" : `shade-${shadeOf(logprob)}`} ${sequence.mask[at] ? "is-trained" : ""}`}
      title={`${count(at)}: id ${id}, ${odds}`}
    >
      {visible(isOneLine ? text.replaceAll("\n", "⏎") : text)}
    </span>
  );
}
