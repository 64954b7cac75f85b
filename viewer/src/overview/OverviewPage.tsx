/** What happened in a run at one glance. Every part leads to the rollouts that it counts. */
import type { Filter, Overview } from "../api";
import { isChanging, useEvery, useLoaded, useRun } from "../data";
import { useSource } from "../source";
import { hrefWithFilter, useFilter } from "../state";
import { isEmpty } from "../filter";
import { ButtonLink } from "../ui/Button";
import { Card } from "../ui/Card";
import { count } from "../ui/format";
import { Empty, ErrorNote, Spinner } from "../ui/notes";
import { ByField } from "./ByField";
import { Components } from "./Components";
import { Counts } from "./Counts";
import { Distributions } from "./Distributions";
import { Failures } from "./Failures";
import { HeatMap } from "./HeatMap";
import { Metrics } from "./Metrics";
import { Progress } from "./Progress";
import { RewardHistograms } from "./Rewards";
import { Summary } from "./Summary";
import "./overview.css";

/** Seconds between two loads while the run goes on. */
const REFRESH_S = 3;

export default function OverviewPage({ run }: { run: string }) {
  const source = useSource();
  const [filter, setFilter] = useFilter();
  // A report may be filtered, too.
  const isWhole = isEmpty(filter) && !source.excerpt?.text;
  const loadedRun = useRun(run);
  const loaded = useLoaded(`${run} ${JSON.stringify(filter)}`, (signal) => source.overview(run, filter, signal));
  const mayChange = source.isLive && loadedRun.data !== null && isChanging(loadedRun.data);
  useEvery(mayChange ? REFRESH_S : null, () => {
    if (!loaded.isLoading) loaded.reload();
  });
  if (loadedRun.error !== null && loadedRun.data === null) {
    return <ErrorNote message={loadedRun.error} onRetry={loadedRun.reload} />;
  }
  return (
    <div class={loaded.isLoading && !mayChange ? "overview is-stale" : "overview"} aria-busy={loaded.isLoading}>
      {loadedRun.data !== null && (
        <Summary run={loadedRun.data} selected={isWhole ? null : (loaded.data?.rewards ?? null)} />
      )}
      {loaded.error !== null && <ErrorNote message={loaded.error} onRetry={loaded.reload} />}
      {loaded.data === null && loaded.error === null && <Spinner label="Loading the overview" />}
      {loaded.data !== null && <Parts run={run} overview={loaded.data} filter={filter} setFilter={setFilter} />}
    </div>
  );
}

interface PartsProps {
  run: string;
  overview: Overview;
  filter: Filter;
  setFilter: (filter: Filter) => void;
}

function Parts({ run, overview, filter, setFilter }: PartsProps) {
  const { counts, rewards, heatmap, failures, progress, distributions, sampled, components } = overview;
  const total = counts.scored + counts.failed + (counts.unresolved ?? 0);
  if (total === 0) return <Nothing filter={filter} setFilter={setFilter} />;
  const toTable = <ButtonLink kind="quiet" to={hrefWithFilter({ page: "rollouts", run }, filter)}>Show rollouts</ButtonLink>;
  const toTasks = <ButtonLink kind="quiet" to={hrefWithFilter({ page: "tasks", run }, filter)}>Show tasks</ButtonLink>;
  const pickReward = (agent: string | null, low: number, high: number | undefined) => {
    const { reward_min: _low, reward_max: _high, ...rest } = filter;
    setFilter({ ...rest, ...(agent === null ? {} : { agent: [agent] }), reward_min: low, ...(high === undefined ? {} : { reward_max: high }) });
  };
  const pickSteps = (low: number, high: number | undefined) => {
    const { steps_min: _low, steps_max: _high, ...rest } = filter;
    setFilter({ ...rest, steps_min: low, ...(high === undefined ? {} : { steps_max: high }) });
  };
  return (
    <>
      <Card title="Rollouts" actions={toTable}>
        <Counts counts={counts} filter={filter} onPick={(outcome) => setFilter(toggled(filter, outcome))} />
      </Card>
      {rewards.length > 0 && <Card title="Rewards"><RewardHistograms rewards={rewards} onPick={pickReward} /></Card>}
      {counts.scored > 0 && <ByField run={run} filter={filter} />}
      {heatmap.tasks.length > 0 && <Card title="Tasks and repeats" actions={toTasks}><HeatMap run={run} heat={heatmap} /></Card>}
      {failures.length > 0 && <Card title="Failures"><Failures run={run} failures={failures} filter={filter} /></Card>}
      {progress.at_s.length > 1 && <Card title="Progress"><Progress progress={progress} /></Card>}
      {distributions.length > 0 && (
        <Card
          title="Steps, tokens and time"
          actions={sampled !== null && <span class="dim">from a sample of {count(sampled)} rollouts</span>}
        >
          <Distributions distributions={distributions} onPickSteps={pickSteps} />
        </Card>
      )}
      {components.length > 0 && <Card title="Reward components"><Components components={components} /></Card>}
      <Metrics run={run} title={isEmpty(filter) ? "Metrics" : "Metrics of the whole run"} />
    </>
  );
}

function Nothing({ filter, setFilter }: { filter: Filter; setFilter: (filter: Filter) => void }) {
  if (isEmpty(filter)) return <Empty title="No rollouts yet"><p>They appear here as soon as the first one ends.</p></Empty>;
  return (
    <Empty title="No rollout matches the filter">
      <button type="button" class="button" onClick={() => setFilter({})}>Clear the filter</button>
    </Empty>
  );
}

/** Picking the outcome that is filtered by already shows all outcomes again. */
function toggled(filter: Filter, outcome: "scored" | "failed" | "unresolved"): Filter {
  const { outcome: before, ...rest } = filter;
  return before?.length === 1 && before[0] === outcome ? rest : { ...rest, outcome: [outcome] };
}
