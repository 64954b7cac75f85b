/** Buttons for the control verbs, with the answer of the latest one as a sentence. */
import { useId, useState } from "preact/hooks";
import type { LiveStatus } from "../api";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { count } from "../ui/format";
import { keyOf } from "./verbs";
import type { Verb } from "./verbs";

export interface Answer {
  text: string;
  isError: boolean;
}

interface Props {
  status: LiveStatus;
  ask: (verb: Verb) => void;
  isAsking: boolean;
  answer: Answer | null;
}

export function Controls({ status, ask, isAsking, answer }: Props) {
  const [isStopping, setIsStopping] = useState(false);
  const failed = Object.values(status.failed).reduce((sum, each) => sum + each, 0);
  const isDraining = status.state === "draining";
  const isSilent = status.running === null;
  const isOff = isAsking || isSilent;
  return (
    <div class="controls">
      {isSilent && <p class="dim">The collection is {status.state} and takes no requests now.</p>}
      <div class="controls-row">
        {status.state === "paused" ? (
          <Button kind="primary" disabled={isOff} onClick={() => ask({ verb: "resume" })}>Resume</Button>
        ) : (
          <Button disabled={isOff || isDraining} onClick={() => ask({ verb: "pause" })}>Pause</Button>
        )}
        <Button disabled={isOff || failed === 0 || isDraining} onClick={() => ask({ verb: "requeue" })}>
          Requeue {count(failed)} failed
        </Button>
        <Button disabled={isOff || isDraining} onClick={() => ask({ verb: "drain" })}>Drain</Button>
        <Button kind="danger" disabled={isOff} onClick={() => setIsStopping(true)}>Stop…</Button>
      </div>
      <div class="controls-row">
        <Concurrency status={status} ask={ask} isOff={isOff} />
        <Cancel ask={ask} isOff={isOff} />
      </div>
      <p class={answer?.isError ? "controls-answer is-error" : "controls-answer"} role="status">{answer?.text}</p>
      {isStopping && (
        <Dialog
          title="Stop this collection?"
          onClose={() => setIsStopping(false)}
          actions={
            <>
              <Button onClick={() => setIsStopping(false)}>Keep it running</Button>
              <Button kind="danger" onClick={() => (setIsStopping(false), ask({ verb: "stop" }))}>Stop now</Button>
            </>
          }
        >
          <p>
            {isSilent ? "Running" : count(status.running)} rollouts are interrupted and stay unresolved. The results so far
            are kept, and the run can be resumed. To let running rollouts finish, use Drain instead.
          </p>
        </Dialog>
      )}
    </div>
  );
}

type FormProps = Pick<Props, "status" | "ask"> & { isOff: boolean };

function Concurrency({ status, ask, isOff }: FormProps) {
  const [text, setText] = useState("");
  const id = useId();
  const wanted = Number(text);
  const isValid = text !== "" && Number.isSafeInteger(wanted) && wanted >= 1;
  const set = (event: Event) => {
    event.preventDefault();
    if (isValid) ask({ verb: "concurrency", details: { wanted } });
    setText("");
  };
  return (
    <form class="controls-form" onSubmit={set}>
      <label for={id}>Concurrency</label>
      <input
        id={id}
        class="field"
        type="number"
        min="1"
        step="1"
        placeholder={String(status.concurrency ?? "")}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit" class="button" disabled={isOff || !isValid}>Set</button>
      <Button pressed={status.is_adaptive} disabled={isOff} onClick={() => ask({ verb: "concurrency" })}>Auto</Button>
    </form>
  );
}

function Cancel({ ask, isOff }: Omit<FormProps, "status">) {
  const [text, setText] = useState("");
  const id = useId();
  const key = keyOf(text);
  const cancel = (event: Event) => {
    event.preventDefault();
    if (key) ask({ verb: "cancel", details: key });
    setText("");
  };
  return (
    <form class="controls-form" onSubmit={cancel}>
      <label for={id}>Cancel</label>
      <input
        id={id}
        class="field"
        placeholder="task or task:repeat"
        inputMode="numeric"
        value={text}
        aria-invalid={text !== "" && !key}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="submit" class="button" disabled={isOff || !key}>Cancel</button>
    </form>
  );
}
