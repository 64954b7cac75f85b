/** Why the rollout failed, with the place in the log of the server. */

import { useEffect, useRef } from "preact/hooks";
import type { Failure } from "../../api";
import { Card, Chip } from "../../ui";
import { LongText } from "../text/LongText";
import { visible } from "../text/visible";

export function FailureCard({ failure }: { failure: Failure }) {
  return (
    <Card title="Failure">
      <p class="failure-chips">
        <Chip tone="failed">{visible(failure.class)}</Chip>
        {failure.tier && <Chip>{visible(failure.tier)}</Chip>}
        {failure.server && <Chip>{visible(failure.server)}</Chip>}
        <Chip>{failure.retryable ? "retryable" : "not retryable"}</Chip>
      </p>
      <div class="failure-message">
        <LongText text={failure.message} />
      </div>
      {failure.log ? <Log log={failure.log} /> : <p class="dim">No log of the server was found.</p>}
    </Card>
  );
}

function Log({ log }: { log: NonNullable<Failure["log"]> }) {
  const marked = new Set(log.marked);
  const place = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const list = place.current;
    const line = list?.querySelector<HTMLElement>(".is-marked");
    // Scrolls the list only, and not the page.
    if (list && line) list.scrollTop = line.offsetTop - list.clientHeight / 2;
  }, [log]);
  return (
    <figure class="log">
      <figcaption>
        Log of {visible(log.server)} <span class="mono dim">{visible(log.path)}</span>
      </figcaption>
      <ol ref={place} tabIndex={0} aria-label={`Log of ${log.server}`}>
        {log.lines.map((line, index) => (
          <li key={index} class={marked.has(index) ? "is-marked" : undefined}>
            <span class="log-number">{log.first_line === null ? "" : log.first_line + index}</span>
            <span class="log-text">
              {marked.has(index) && <span class="hidden">marked: </span>}
              {visible(line)}
            </span>
          </li>
        ))}
      </ol>
    </figure>
  );
}
