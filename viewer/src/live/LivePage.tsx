/** A running collection: what it is doing, and the verbs that steer it. */
import { useMemo, useState } from "preact/hooks";
import type { LiveStatus, Run } from "../api";
import { messageOf, useRun } from "../data";
import { Figure, Figures } from "../overview/Figures";
import { Plot } from "../overview/Plot";
import type { Line } from "../overview/Plot";
import { useSource } from "../source";
import { href } from "../state";
import { Bar } from "../ui/Bar";
import { Card } from "../ui/Card";
import { Chip } from "../ui/Chip";
import type { Tone } from "../ui/Chip";
import { count, mean, number, seconds } from "../ui/format";
import { Empty, Spinner, WarnNote } from "../ui/notes";
import { Controls } from "./Controls";
import type { Answer } from "./Controls";
import { Longest } from "./Longest";
import { Servers } from "./Servers";
import { useLive } from "./useLive";
import type { Sample } from "./useLive";
import { sentenceOf } from "./verbs";
import type { Verb } from "./verbs";
import "./live.css";

export default function LivePage({ run }: { run: string }) {
  const source = useSource();
  return source.isReport ? <Empty title="A report is not live" /> : <Following run={run} />;
}

function Following({ run }: { run: string }) {
  const live = useLive(run);
  const record = useRun(run);
  const latest = live.samples.at(-1)?.status;
  if (live.ended) return <Ended run={live.ended} />;
  return (
    <div class="live">
      <h1 class="hidden">Live</h1>
      {live.isBroken && <WarnNote>The viewer does not answer. This page connects again every few seconds.</WarnNote>}
      {!latest && !live.isBroken && <Spinner label="Waiting for the state of the collection" />}
      {latest && <Parts run={run} latest={latest} samples={live.samples} canControl={record.data?.is_live ?? false} />}
    </div>
  );
}

interface PartsProps {
  run: string;
  latest: LiveStatus;
  samples: Sample[];
  canControl: boolean;
}

function Parts({ run, latest, samples, canControl }: PartsProps) {
  const { ask, isAsking, answer } = useVerbs(run);
  return (
    <>
      <Card title="Now" actions={<Chip tone={toneOf(latest.state)}>{latest.state}</Chip>}>
        <Now status={latest} />
      </Card>
      <Card title="Control">
        {canControl ? (
          <Controls status={latest} ask={ask} isAsking={isAsking} answer={answer} />
        ) : (
          <p class="dim">
            This collection does not answer on its control socket: it runs on another machine, or as another user. The numbers come
            from its files.
          </p>
        )}
      </Card>
      <div class="live-pair">
        <Card title="Rate and rollouts in flight"><Pace samples={samples} /></Card>
        {latest.longest.length > 0 && (
          <Card title="Running for longest">
            <Longest run={run} longest={latest.longest} cancel={canControl && !isAsking ? ask : null} />
          </Card>
        )}
      </div>
      {latest.servers.length > 0 && <Card title="Servers"><Servers samples={samples} /></Card>}
    </>
  );
}

function useVerbs(run: string): { ask: (verb: Verb) => void; isAsking: boolean; answer: Answer | null } {
  const source = useSource();
  const [isAsking, setIsAsking] = useState(false);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const ask = (verb: Verb) => {
    setIsAsking(true);
    source
      .control(run, verb.verb, verb.details)
      .then(
        (reply) => setAnswer({ text: sentenceOf(verb, reply), isError: false }),
        (error: unknown) => setAnswer({ text: `Not done: ${messageOf(error)}`, isError: true }),
      )
      .finally(() => setIsAsking(false));
  };
  return { ask, isAsking, answer };
}

function Now({ status }: { status: LiveStatus }) {
  const failed = Object.values(status.failed).reduce((sum, each) => sum + each, 0);
  const running = status.running ?? 0;
  const waiting = Math.max(0, status.unresolved - running);
  return (
    <div class="now">
      <Bar
        total={status.planned}
        segments={[
          { label: "scored", value: status.scored, tone: "scored" },
          { label: "failed", value: failed, tone: "failed" },
          { label: "running", value: running, tone: "running" },
          { label: "unresolved", value: waiting, tone: "unresolved" },
        ]}
      />
      <Figures>
        <Figure name="scored" value={count(status.scored)} note={`of ${count(status.planned)} planned`} />
        <Figure name="failed" value={count(failed)} note={causesOf(status.failed)} />
        <Figure name="unresolved" value={count(status.unresolved)} note={status.requeued > 0 ? `${count(status.requeued)} to run again` : ""} />
        <Figure name="in flight" value={count(status.running)} note={limitOf(status)} />
        <Figure name="rollouts/s" value={rate(status.rollouts_per_s)} note={status.left_s === null ? "" : `about ${seconds(Math.ceil(status.left_s))} left`} />
        <Figure name="mean reward" value={mean(status.mean_reward)} />
      </Figures>
    </div>
  );
}

function causesOf(failed: Record<string, number>): string {
  const causes = Object.entries(failed).sort(([, a], [, b]) => b - a);
  return causes.slice(0, 3).map(([cause, failures]) => `${cause} ${count(failures)}`).join(", ");
}

function limitOf({ concurrency, is_adaptive }: LiveStatus): string {
  return concurrency === null ? "" : `of at most ${count(concurrency)}${is_adaptive ? ", adaptive" : ""}`;
}

function Pace({ samples }: { samples: Sample[] }) {
  const { x, lines } = useMemo(() => paceOf(samples), [samples]);
  const latest = samples.at(-1)?.status;
  const label = `${rate(latest?.rollouts_per_s ?? 0)} rollouts per second, ${count(latest?.running)} in flight, since ${ago(x[0] ?? 0)}.`;
  return <Plot label={label} x={x} lines={lines} formatX={ago} height={240} />;
}

function paceOf(samples: Sample[]): { x: number[]; lines: Line[] } {
  const now = samples.at(-1)?.at ?? 0;
  const lines: Line[] = [
    { label: "rollouts/s", values: samples.map(({ status }) => status.rollouts_per_s), color: "--series-1", format: rate, isFilled: true },
  ];
  if (samples.some(({ status }) => status.running !== null)) {
    lines.push({ label: "in flight", values: samples.map(({ status }) => status.running), color: "--series-2", format: number, isRight: true });
  }
  return { x: samples.map(({ at }) => Math.round((at - now) / 1000)), lines };
}

function rate(perSecond: number): string {
  return number(Number(perSecond.toPrecision(3)));
}

function ago(value: number): string {
  return value > -0.5 ? "now" : `${seconds(-value)} ago`;
}

function Ended({ run }: { run: Run }) {
  return (
    <Empty title={run.state === "finished" ? "The collection has finished" : `The collection is not running: ${run.state}`}>
      <p>
        {count(run.scored)} scored, {count(run.failed)} failed, {count(run.unresolved)} unresolved.{" "}
        {run.reason !== null && <span dir="auto">{run.reason}</span>}
      </p>
      <p><a href={href({ page: "overview", run: run.id })}>Open the overview</a></p>
    </Empty>
  );
}

function toneOf(state: LiveStatus["state"]): Tone {
  return state === "paused" || state === "draining" ? "warn" : "running";
}
