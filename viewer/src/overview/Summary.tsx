/** What a run is and how it went, in a few numbers. */
import type { Overview, Run } from "../api";
import { StateChip } from "../ui/Chip";
import { dateTime, mean, percent, seconds } from "../ui/format";
import { Problems } from "../ui/notes";
import { Progress } from "../ui/Bar";
import { Figure, Figures } from "./Figures";
import { meanOf } from "./mean";

/** The files of a running collection grow all the time, so that the index is always a moment late. */
const NEARLY_ALL = 0.98;

interface Props {
  run: Run;
  /** The rewards that the filter selects; null without a filter. */
  selected: Overview["rewards"] | null;
}

export function Summary({ run, selected }: Props) {
  const share = run.indexed.of > 0 ? run.indexed.bytes / run.indexed.of : 1;
  return (
    <>
      <h1 class="hidden">Overview of {run.name}</h1>
      <Problems problems={run.problems} />
      {share < NEARLY_ALL && (
        <Progress
          value={run.indexed.bytes}
          of={run.indexed.of}
          label={`${percent(share)} of the files are indexed. The numbers below are not complete yet.`}
        />
      )}
      <Figures>
        <Figure name="state" value={<StateChip run={run} />} note={run.reason ?? ""} />
        {selected === null ? (
          <Figure name="mean reward" value={mean(run.mean_reward)} note={run.state === "running" ? "" : passOf(run)} />
        ) : (
          <Figure name="mean reward" value={mean(meanOf(selected))} note={`selected; whole run ${mean(run.mean_reward)}`} />
        )}
        <Figure name="model" value={run.model ?? "unknown"} />
        <Figure name="duration" value={seconds(run.seconds)} note={run.started_at === null ? "" : `since ${dateTime(run.started_at)}`} />
      </Figures>
    </>
  );
}

/** pass@1 and the largest pass@k, if all rewards are 0 or 1. */
function passOf({ pass_at }: Run): string {
  const all = Object.entries(pass_at ?? {}).sort(([a], [b]) => Number(a) - Number(b));
  const shown = all.length > 2 ? [all[0], all.at(-1)] : all;
  return shown.flatMap((each) => (each ? `pass@${each[0]} ${percent(each[1])}` : [])).join(", ");
}
