/** The title of a rollout, its attempts, and the way to its neighbours. */

import type { Rollout } from "../api";
import { href, navigate, numberOf, useRoute } from "../state";
import type { Page } from "../state";
import { Button, OutcomeChip, Reward, useShortcuts } from "../ui";
import { visible } from "./text/visible";

/** What stays when the reader goes on to the next rollout. */
const KEPT = ["tab", "hide", "raw", "unfold"];

export function Head({ rollout }: { rollout: Rollout }) {
  const { query } = useRoute();
  const kept = Object.fromEntries(KEPT.map((name) => [name, query.get(name)]));
  // The way back leads to the row of the table that is shown then.
  const row = numberOf(query.get("row"));
  const linkTo = (place: { task: number; repeat: number } | null, by: number): string | null =>
    place && href({ page: "rollout", run: rollout.run, ...place }, { ...kept, row: row === null ? null : row + by });
  const [previous, next] = [linkTo(rollout.previous, -1), linkTo(rollout.next, 1)];
  const table: Page = { page: "rollouts", run: rollout.run };
  useShortcuts([
    { keys: ["j", "ArrowRight"], label: "Next rollout of the table", act: () => next && navigate(next) },
    { keys: ["k", "ArrowLeft"], label: "Previous rollout of the table", act: () => previous && navigate(previous) },
    { keys: ["Escape"], label: "Back to the table", act: () => navigate(href(table)) },
  ]);
  return (
    <header class="rollout-head">
      <div class="rollout-title">
        <h1>
          Task {rollout.task} · repeat {rollout.repeat}
        </h1>
        <OutcomeChip outcome={rollout.outcome} />
        {rollout.outcome === "scored" && (
          <strong>
            reward <Reward value={rollout.reward} />
          </strong>
        )}
        {rollout.agent && <span class="dim">{visible(rollout.agent)}</span>}
      </div>
      <nav class="rollout-nav" aria-label="Other rollouts">
        <Attempts rollout={rollout} />
        <span class="narrow-only">
          <Button onClick={showResult}>Result</Button>
        </span>
        <a class="button" href={href({ page: "task", run: rollout.run, task: rollout.task })}>
          All repeats
        </a>
        <Neighbour to={previous} label="Previous" hint="k" />
        <Neighbour to={next} label="Next" hint="j" />
      </nav>
    </header>
  );
}

/** In a narrow window the result is below the conversation. */
function showResult(): void {
  const side = document.querySelector<HTMLElement>(".rollout-side");
  side?.scrollIntoView();
  side?.focus({ preventScroll: true });
}

function Neighbour({ to, label, hint }: { to: string | null; label: string; hint: string }) {
  if (to === null) {
    return (
      <span class="button is-off" aria-disabled="true" role="link">
        {label}
      </span>
    );
  }
  return (
    <a class="button" href={to} title={`${label} rollout of the table (${hint})`}>
      {label}
    </a>
  );
}

function Attempts({ rollout }: { rollout: Rollout }) {
  if (rollout.attempts.length < 2) return null;
  const last = Math.max(...rollout.attempts);
  const open = (attempt: number): void =>
    navigate(
      href(
        { page: "rollout", run: rollout.run, task: rollout.task, repeat: rollout.repeat },
        { attempt: attempt === last ? null : attempt },
      ),
    );
  return (
    <label class="attempts">
      Attempt{" "}
      <select class="field" value={rollout.attempt} onChange={(event) => open(Number(event.currentTarget.value))}>
        {rollout.attempts.map((attempt) => (
          <option key={attempt} value={attempt}>
            {attempt + 1}
            {attempt === last ? " (last)" : " (failed)"}
          </option>
        ))}
      </select>
    </label>
  );
}
