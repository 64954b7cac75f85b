/** All repeats of a task side by side. */

import { useMemo } from "preact/hooks";
import type { TaskPage as Task } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { href, navigate, useParameter } from "../state";
import { Empty, ErrorNote, Spinner, useShortcuts } from "../ui";
import { amount, mean } from "../ui/format";
import { Chooser } from "./align/Chooser";
import { Columns } from "./align/Columns";
import { firstChoice, numbersOf } from "./align/choice";
import { TaskTitle } from "./align/TaskTitle";
import { useChosen } from "./align/useChosen";
import "./align/align.css";
import "./conversation/conversation.css";
import "./rollout.css";
import "./text/text.css";

export default function TaskPage({ run, task }: { run: string; task: number }) {
  const source = useSource();
  const loaded = useLoaded(`${run}/${task}`, (signal) => source.task(run, task, signal));
  useShortcuts([
    { keys: ["Escape"], label: "Back to the table", act: () => navigate(href({ page: "rollouts", run })) },
  ]);
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null || loaded.isLoading) return <Spinner label="Loading the repeats" />;
  return <Repeats page={loaded.data} />;
}

function Repeats({ page }: { page: Task }) {
  const [parameter, setParameter] = useParameter("show");
  const chosen = parameter === null ? firstChoice(page.all) : numbersOf(parameter);
  const { rollouts, isLoading, error, reload } = useChosen(chosen.map((repeat) => ({ page, repeat })));
  const shown = rollouts.map(({ repeat, attempt }) => `${repeat}:${attempt}`).join();
  const columns = useMemo(
    () =>
      rollouts.map((rollout) => ({
        key: String(rollout.repeat),
        title: `Repeat ${rollout.repeat}`,
        to: href({ page: "rollout", run: page.run, task: page.task, repeat: rollout.repeat }),
        rollout,
      })),
    [page, shown],
  );
  const rewards = page.all.flatMap(({ reward }) => (reward === null ? [] : [reward]));
  return (
    <div class="task">
      <header class="rollout-title">
        <h1>Task {page.task}</h1>
        <span class="dim">
          {amount(page.all.length, "repeat")}
          {rewards.length > 0 && (
            <> · mean reward {mean(rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length)}</>
          )}
        </span>
      </header>
      <TaskTitle title={page.title} />
      <Chooser all={page.all} chosen={chosen} onChange={(repeats) => setParameter(repeats.join(","))} />
      {error !== null && <ErrorNote message={error} onRetry={reload} />}
      {isLoading && <Spinner label="Loading more repeats" />}
      {chosen.length === 0 ? <Empty title="Choose repeats to compare" /> : <Columns rollouts={columns} />}
    </div>
  );
}
