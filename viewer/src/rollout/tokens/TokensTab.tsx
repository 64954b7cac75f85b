/** The training sequences of a rollout, token by token. */

import { useState } from "preact/hooks";
import type { Rollout, Tokens } from "../../api";
import { useLoaded } from "../../data";
import { useSource } from "../../source";
import { useParameter } from "../../state";
import { Button, Empty, ErrorNote, Spinner, WarnNote } from "../../ui";
import { amount, count, number } from "../../ui/format";
import type { Sequence } from "./cells";
import { LIMITS } from "./cells";
import { SHADES } from "./paint";
import { Surprises } from "./Surprises";
import { TokenGrid } from "./TokenGrid";
import { TokenText } from "./TokenText";
import "./tokens.css";

export function TokensTab({ rollout }: { rollout: Rollout }) {
  if (rollout.outcome !== "scored") {
    return (
      <Empty title="No training sequences">
        <p>Only scored rollouts are trained on.</p>
      </Empty>
    );
  }
  return <Loading run={rollout.run} task={rollout.task} repeat={rollout.repeat} />;
}

function Loading({ run, task, repeat }: { run: string; task: number; repeat: number }) {
  const source = useSource();
  const loaded = useLoaded(`${run}/${task}/${repeat}`, (signal) => source.tokens(run, task, repeat, signal));
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null || loaded.isLoading) return <Spinner label="Loading the tokens" />;
  return <Sequences tokens={loaded.data} />;
}

const VIEWS = { text: "Text", ids: "Ids", surprise: "By surprise" } as const;

function Sequences({ tokens }: { tokens: Tokens }) {
  const [given, setView] = useParameter("as");
  const [chosen, setChosen] = useState(0);
  const sequence = tokens.sequences[chosen] ?? tokens.sequences[0];
  if (sequence === undefined) {
    return (
      <Empty title="No training sequences">
        <p>{tokens.problem ?? "The model server returned no token ids."}</p>
      </Empty>
    );
  }
  const usual = sequence.texts === null ? "ids" : "text";
  const view = given === "text" || given === "ids" || given === "surprise" ? given : usual;
  return (
    <section class="tokens" aria-label="Tokens">
      {tokens.problem !== null && <WarnNote>{tokens.problem}</WarnNote>}
      {tokens.is_masked && <WarnNote>Not trained on: {tokens.mask_reason ?? "this rollout is masked"}.</WarnNote>}
      <div class="tokens-head">
        {tokens.sequences.length > 1 && (
          <label>
            Sequence{" "}
            <select class="field" value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
              {tokens.sequences.map((each, index) => (
                <option key={index} value={index}>
                  {index + 1} of {tokens.sequences.length}: {count(each.ids.length)} tokens
                </option>
              ))}
            </select>
          </label>
        )}
        <div role="group" aria-label="Tokens as">
          {(Object.keys(VIEWS) as (keyof typeof VIEWS)[]).map((each) => (
            <>
              <Button key={each} pressed={each === view} onClick={() => setView(each === usual ? null : each)}>
                {VIEWS[each]}
              </Button>{" "}
            </>
          ))}
        </div>
        <Summary sequence={sequence} />
      </div>
      <Legend />
      {view === "ids" && <TokenGrid sequence={sequence} />}
      {view === "text" && <TokenText sequence={sequence} />}
      {view === "surprise" && <Surprises sequence={sequence} />}
    </section>
  );
}

function Summary({ sequence }: { sequence: Sequence }) {
  let trained = 0;
  let known = 0;
  let sum = 0;
  sequence.ids.forEach((_, index) => {
    if (sequence.mask[index] === 1) trained++;
    const logprob = sequence.logprobs[index];
    if (logprob === null || logprob === undefined) return;
    known++;
    sum += logprob;
  });
  return (
    <p class="dim">
      {amount(sequence.ids.length, "token")} · {count(sequence.prompt_length)} in the prompt · {count(trained)} trained ·{" "}
      {amount(sequence.turns.length, "turn")}
      {known > 0 && <> · mean log-probability {number(sum / known)}</>}
    </p>
  );
}

function Legend() {
  const labels = LIMITS.map((limit) => `≥ ${limit}`);
  labels.push(`< ${LIMITS.at(-1) ?? 0}`);
  return (
    <ul class="legend" aria-label="Legend">
      <li>probability</li>
      {labels.map((label, index) => (
        <li key={label}>
          <span class="legend-swatch is-shade">
            <span style={{ opacity: SHADES[index] ?? 1 }} />
          </span>
          {label}
        </li>
      ))}
      <li>
        <span class="legend-swatch is-trained" /> underlined: trained
      </li>
      <li>
        <span class="legend-swatch is-context" /> hatched or pale: not sampled
      </li>
    </ul>
  );
}
