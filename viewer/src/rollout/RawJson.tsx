/** The raw line of a rollout, loaded when it is asked for. */

import { useMemo } from "preact/hooks";
import type { Json, Rollout } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { Command, Empty, ErrorNote, Spinner } from "../ui";
import { bytes } from "../ui/format";
import { quoted } from "../ui/shell_words";
import { JsonTree } from "./text/JsonTree";
import { LongText } from "./text/LongText";

/** A larger line would fill the memory of the page. */
const MOST_BYTES = 32_000_000;

export function RawJson({ rollout }: { rollout: Rollout }) {
  const source = useSource();
  const { file } = rollout;
  if (source.isReport || file === null) {
    return (
      <Empty title="No raw line">
        <p>
          {source.isReport ? "A report does not include the raw lines." : "This rollout has no line in a file yet."}
        </p>
      </Empty>
    );
  }
  return (
    <section aria-label="Raw JSON">
      <p class="dim">
        <span class="mono">
          {file.path}:{file.line}
        </span>{" "}
        · {bytes(file.bytes)} from byte {file.offset}
      </p>
      <Command text={`tail -c +${file.offset + 1} ${quoted(file.path)} | head -c ${file.bytes}`} />
      {file.bytes > MOST_BYTES ? (
        <p>The line is too large for this page. The command prints it.</p>
      ) : (
        <Line rollout={rollout} />
      )}
    </section>
  );
}

function Line({ rollout }: { rollout: Rollout }) {
  const source = useSource();
  const { run, task, repeat, attempt } = rollout;
  const loaded = useLoaded(`${run}/${task}/${repeat}/${attempt}`, (signal) =>
    source.raw(run, task, repeat, attempt, signal),
  );
  const value = useMemo(() => parsed(loaded.data), [loaded.data]);
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null || loaded.isLoading) return <Spinner label="Loading the line" />;
  return value === undefined ? <LongText text={loaded.data} /> : <JsonTree value={value} label="raw line" open={2} />;
}

function parsed(text: string | null): Json | undefined {
  if (text === null) return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
