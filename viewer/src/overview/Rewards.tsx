/** One histogram of rewards per agent. A bar filters by its agent and range. */
import type { Overview } from "../api";
import { count, mean } from "../ui/format";
import { Histogram } from "./Histogram";

type Rewards = Overview["rewards"][number];

interface Props {
  rewards: Rewards[];
  onPick: (agent: string | null, low: number, high: number | undefined) => void;
}

export function RewardHistograms({ rewards, onPick }: Props) {
  return (
    <div class={`multiples ${rewards.length === 1 ? "is-single" : ""}`}>
      {rewards.map((each) => (
        <figure key={each.agent ?? ""}>
          <figcaption>
            <span class="cut" title={each.agent ?? ""}>{each.agent ?? "all agents"}</span>
            <span class="dim">{count(each.counts.reduce((sum, bin) => sum + bin, 0))}</span>
          </figcaption>
          <p class="figure-value">
            <strong>{mean(each.mean)}</strong> <span class="dim">{intervalOf(each)}</span>
          </p>
          <Histogram
            {...each}
            tone="accent"
            label={`rewards${each.agent ? ` of ${each.agent}` : ""}`}
            marks={[{ at: each.mean, name: "mean" }]}
            onPick={(low, high) => onPick(each.agent, low, high)}
          />
        </figure>
      ))}
    </div>
  );
}

function intervalOf({ ci }: Rewards): string {
  return ci ? `mean, 95% interval ${mean(ci[0])} to ${mean(ci[1])}` : "mean";
}
