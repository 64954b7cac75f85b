/** Finished rollouts, their rate and the rollouts in flight, over the time of the run. */
import { useMemo } from "preact/hooks";
import type { Overview } from "../api";
import { compact, count, number, seconds } from "../ui/format";
import { Plot } from "./Plot";
import type { Line } from "./Plot";

type Points = Overview["progress"];

export function Progress({ progress }: { progress: Points }) {
  const total = progress.finished.at(-1) ?? 0;
  const lasted = progress.at_s.at(-1) ?? 0;
  const label = `${count(total)} rollouts finished within ${seconds(lasted)}${lasted > 0 ? `, ${rate(total / lasted)} per second on average` : ""}.`;
  const finished = useMemo((): Line[] => [{ label: "finished", values: progress.finished, color: "--series-1", format: compact, isFilled: true }], [progress]);
  const pace = useMemo(() => paceOf(progress), [progress]);
  return (
    <>
      <p class="dim">{label}</p>
      <div class="plot-pair">
        <Plot label={label} x={progress.at_s} lines={finished} formatX={time} />
        <Plot label="Rollouts per second, and rollouts in flight" x={progress.at_s} lines={pace} formatX={time} />
      </div>
    </>
  );
}

function paceOf({ at_s, finished, in_flight }: Points): Line[] {
  const rates = finished.map((value, at) => {
    const lasted = (at_s[at] ?? 0) - (at_s[at - 1] ?? 0);
    return at > 0 && lasted > 0 ? (value - (finished[at - 1] ?? 0)) / lasted : null;
  });
  const lines: Line[] = [{ label: "rollouts/s", values: rates, color: "--series-3", format: rate }];
  if (in_flight.some((each) => each !== null)) {
    lines.push({ label: "in flight", values: in_flight, color: "--series-2", format: compact, isRight: true });
  }
  return lines;
}

function rate(perSecond: number): string {
  return number(Number(perSecond.toPrecision(3)));
}

function time(value: number): string {
  return value === 0 ? "0" : seconds(value).replace(/ 0 s$/, "");
}
