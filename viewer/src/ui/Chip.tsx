/** Small labels: filters, tags, outcomes, states. */

import type { ComponentChildren } from "preact";
import type { Outcome, Run, RunState } from "../api";

export type Tone = "neutral" | "accent" | "scored" | "failed" | "unresolved" | "running" | "warn";

export interface ChipProps {
  tone?: Tone;
  title?: string | undefined;
  children: ComponentChildren;
  onRemove?: () => void;
  /** What is removed, for screen readers. */
  removeLabel?: string;
}

export function Chip({ tone = "neutral", title, children, onRemove, removeLabel = "Remove" }: ChipProps) {
  return (
    <span class={`chip chip-${tone}`} title={title}>
      <span class="cut">{children}</span>
      {onRemove && (
        <button type="button" class="chip-remove" aria-label={removeLabel} title={removeLabel} onClick={onRemove}>
          ×
        </button>
      )}
    </span>
  );
}

/** An outcome by shape, text and colour. Nothing for a scored rollout, because its reward says more. */
export function OutcomeChip({ outcome, title }: { outcome: Outcome; title?: string }) {
  if (outcome === "scored") return null;
  return (
    <span class={`outcome outcome-${outcome}`} title={title}>
      <OutcomeMark outcome={outcome} /> {outcome}
    </span>
  );
}

/** A full disc, a cross or an empty circle. */
export function OutcomeMark({ outcome }: { outcome: Outcome }) {
  return (
    <svg class={`mark mark-${outcome}`} viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
      {outcome === "scored" && <circle cx="5" cy="5" r="4" fill="currentColor" />}
      {outcome === "failed" && <path d="M1.5 1.5l7 7m0-7l-7 7" stroke="currentColor" stroke-width="2" fill="none" />}
      {outcome === "unresolved" && (
        <circle cx="5" cy="5" r="3.5" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2 1.5" fill="none" />
      )}
    </svg>
  );
}

const STATES: Record<RunState, Tone> = {
  running: "running",
  finished: "scored",
  interrupted: "warn",
  stopped: "warn",
  killed: "failed",
  unknown: "unresolved",
};

const MEANINGS: Partial<Record<RunState, string>> = {
  killed: "Its process ended without a word. --resume goes on with it.",
  unknown: "The file has no record of its run (_run.json) next to it.",
};

export function StateChip({ run: { state, phase, reason } }: { run: Run }) {
  return (
    <Chip tone={phase ? "warn" : STATES[state]} title={reason ?? MEANINGS[state]}>
      {state === "running" && !phase && <span class="pulse" aria-hidden="true" />}
      {phase ?? state}
    </Chip>
  );
}
