/** The reward with its components, and the facts about the rollout. */

import type { ComponentChildren } from "preact";
import type { Rollout } from "../../api";
import { Card, Chip, OutcomeChip, Reward } from "../../ui";
import { count, number, plain, seconds } from "../../ui/format";
import { visible } from "../text/visible";

export function Result({ rollout }: { rollout: Rollout }) {
  return (
    <Card title="Result">
      <div class="result-head">
        <p class="result-reward">
          <span class="hidden">Reward </span>
          <Reward value={rollout.reward} />
        </p>
        <div class="result-chips">
          <OutcomeChip outcome={rollout.outcome} />
          {rollout.is_masked && <Chip tone="warn">masked: not trained on</Chip>}
        </div>
      </div>
      {rollout.mask_reason && <p class="dim">{visible(rollout.mask_reason)}</p>}
      <Components components={rollout.reward_components} />
      <Facts rollout={rollout} />
    </Card>
  );
}

function Components({ components }: { components: Record<string, number> }) {
  const entries = Object.entries(components);
  if (entries.length === 0) return null;
  const low = Math.min(0, ...entries.map(([, value]) => value));
  const high = Math.max(1, ...entries.map(([, value]) => value));
  const percent = (value: number): number => (100 * (value - low)) / (high - low);
  return (
    <table class="components">
      <caption>Components of the reward</caption>
      <tbody>
        {entries.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{visible(name)}</th>
            <td class="components-bar" aria-hidden="true">
              <span class="components-track">
                <span
                  class={`components-fill${value < 0 ? " is-negative" : ""}`}
                  style={{
                    left: `${percent(Math.min(0, value))}%`,
                    width: `${percent(Math.max(0, value)) - percent(Math.min(0, value))}%`,
                  }}
                />
              </span>
            </td>
            <td class="number">{number(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Facts({ rollout }: { rollout: Rollout }) {
  const { usage } = rollout;
  const total = lengthOf(rollout);
  return (
    <dl class="facts">
      <Fact name="agent">{rollout.agent && visible(rollout.agent)}</Fact>
      <Fact name="model">{rollout.model && visible(rollout.model)}</Fact>
      <Fact name="policy version">{rollout.policy_version === null ? null : plain(rollout.policy_version)}</Fact>
      <Fact name="input tokens">
        {usage?.input_tokens != null && (
          <>
            {count(usage.input_tokens)}
            {!!usage.cached_tokens && <span class="dim"> · {count(usage.cached_tokens)} cached</span>}
          </>
        )}
      </Fact>
      <Fact name="output tokens">
        {usage?.output_tokens != null && (
          <>
            {count(usage.output_tokens)}
            {!!usage.reasoning_tokens && <span class="dim"> · {count(usage.reasoning_tokens)} reasoning</span>}
          </>
        )}
      </Fact>
      <Fact name="time of the calls">{total === null ? null : seconds(total)}</Fact>
      <Fact name="place">
        {rollout.file && (
          <span class="mono" title={rollout.file.path}>
            {visible(rollout.file.path.split("/").at(-1) ?? "")}:{rollout.file.line}
          </span>
        )}
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  if (children === null || children === undefined || children === false || children === "") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Seconds from the first call's start to the last call's end. */
function lengthOf(rollout: Rollout): number | null {
  if (rollout.timeline.length === 0) return null;
  let end = 0;
  let start = Infinity;
  for (const span of rollout.timeline) {
    start = Math.min(start, span.start_ms);
    end = Math.max(end, span.start_ms + span.duration_ms);
  }
  return (end - start) / 1000;
}
