/** Several rollouts next to each other, aligned step by step. */

import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Rollout } from "../../api";
import { Button, OutcomeChip, Reward } from "../../ui";
import { ItemView } from "../conversation/Conversation";
import { ALL } from "../conversation/options";
import { visible } from "../text/visible";
import { align, contentOf } from "./steps";
import type { Step } from "./steps";

export interface AlignedRollout {
  key: string;
  /** What the reader calls it, such as "repeat 2". */
  title: ComponentChildren;
  /** The link to its page. */
  to: string;
  rollout: Rollout;
}

export function Columns({ rollouts }: { rollouts: AlignedRollout[] }) {
  const { steps, parted } = useMemo(() => align(rollouts.map((each) => each.rollout.items)), [rollouts]);
  const [showsEqual, setShowsEqual] = useState(true);
  const frame = useRef<HTMLDivElement>(null);
  const goToParting = (): void => frame.current?.querySelector(".is-parting")?.scrollIntoView({ block: "center" });
  const equal = steps.filter((step) => step.isEqual).length;
  return (
    <section class="aligned" aria-labelledby="aligned-title">
      <h2 class="hidden" id="aligned-title">
        Side by side
      </h2>
      <div class="aligned-controls">
        <p>{rollouts.length < 2 ? "Choose at least two." : summary(steps.length, equal, parted)}</p>
        {parted !== null && rollouts.length > 1 && (
          <>
            <Button onClick={goToParting}>Go to the first difference</Button>
            {equal > 0 && (
              <Button pressed={showsEqual} onClick={() => setShowsEqual(!showsEqual)}>
                Equal steps
              </Button>
            )}
          </>
        )}
      </div>
      <div class="aligned-frame" ref={frame} tabIndex={0} role="region" aria-label="Steps">
        <table class="aligned-table" style={{ minWidth: `${rollouts.length * 300}px` }}>
          <thead>
            <tr>
              {rollouts.map((each) => (
                <ColumnHead key={each.key} rollout={each} />
              ))}
            </tr>
          </thead>
          <tbody>
            {steps.map((step, index) =>
              showsEqual || !step.isEqual ? (
                <StepRow key={index} step={step} isParting={index === parted && rollouts.length > 1} />
              ) : null,
            )}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function summary(steps: number, equal: number, parted: number | null): string {
  if (parted === null) return `All ${steps} steps are equal.`;
  return `${equal} of ${steps} steps are equal. The first difference is step ${parted + 1}.`;
}

function ColumnHead({ rollout: { title, to, rollout } }: { rollout: AlignedRollout }) {
  return (
    <th scope="col">
      <a href={to}>{title}</a>
      <div class="aligned-facts">
        <OutcomeChip outcome={rollout.outcome} />
        {rollout.outcome === "scored" && (
          <strong class="aligned-reward">
            <Reward value={rollout.reward} />
          </strong>
        )}
      </div>
      {rollout.failure && <p class="dim">{visible(rollout.failure.class)}</p>}
      {rollout.omitted > 0 && <p class="dim">{rollout.omitted} more items are not compared.</p>}
    </th>
  );
}

function StepRow({ step, isParting }: { step: Step; isParting: boolean }) {
  const shown = { ...ALL, metadata: false };
  const [first] = step.items;
  if (step.isEqual && first) {
    return (
      <tr class="is-equal">
        <td colSpan={step.items.length}>
          <div class="aligned-equal">
            <ItemView item={first} shown={shown} />
          </div>
        </td>
      </tr>
    );
  }
  const content = step.items.map((item, index) => (
    <td key={index}>
      {item === null ? <p class="aligned-none">no such step</p> : <ItemView item={item} shown={shown} />}
      {index > 0 && first && contentOf(item) === contentOf(first) && (
        <p class="aligned-same">= as in the first column</p>
      )}
    </td>
  ));
  if (!isParting) return <tr>{content}</tr>;
  return (
    <>
      <tr class="aligned-mark">
        <td colSpan={step.items.length}>
          <span>They part here</span>
        </td>
      </tr>
      <tr class="is-parting">{content}</tr>
    </>
  );
}
