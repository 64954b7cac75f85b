/** Distributions of steps, tokens and seconds per tier, with median and 95th percentile. */
import type { Overview } from "../api";
import { compact, number, seconds } from "../ui/format";
import { Histogram } from "./Histogram";

type Distribution = Overview["distributions"][number];

const TITLES: Record<Distribution["name"], string> = {
  steps: "Steps",
  input_tokens: "Input tokens",
  output_tokens: "Output tokens",
  seconds: "Rollout",
  model_seconds: "Model calls",
  tool_seconds: "Tool calls",
  verify_seconds: "Verification",
};

interface Props {
  distributions: Distribution[];
  onPickSteps: (low: number, high: number | undefined) => void;
}

export function Distributions({ distributions, onPickSteps }: Props) {
  return (
    <div class="multiples">
      {distributions.map((each) => {
        const format = each.name.endsWith("seconds") ? seconds : tokensOrSteps;
        return (
          <figure key={each.name}>
            <figcaption>
              <span>{TITLES[each.name]}</span>
              <span class="dim">{each.name.endsWith("seconds") ? "seconds" : ""}</span>
            </figcaption>
            <dl class="quantiles">
              <div><dt>mean</dt><dd>{format(each.mean)}</dd></div>
              <div class="is-p50"><dt>p50</dt><dd>{format(each.p50)}</dd></div>
              <div class="is-p95"><dt>p95</dt><dd>{format(each.p95)}</dd></div>
              <div><dt>max</dt><dd>{format(each.max)}</dd></div>
            </dl>
            <Histogram
              {...each}
              label={TITLES[each.name].toLowerCase()}
              marks={[{ at: each.p50, name: "p50" }, { at: each.p95, name: "p95" }]}
              format={format}
              isWhole={!each.name.endsWith("seconds")}
              onPick={each.name === "steps" ? (low, high) => onPickSteps(Math.ceil(low), high && Math.floor(high)) : undefined}
            />
          </figure>
        );
      })}
    </div>
  );
}

/** Means of small numbers need a decimal. */
function tokensOrSteps(value: number): string {
  return value < 100 ? number(Number(value.toFixed(1))) : compact(value);
}
