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
import { visible } from "./text/visible";
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
  const chosen = parameter === null ? firstChoice(page) : numbersOf(parameter);
  const columns = useMemo(
    () =>
      page.repeats
        .filter((rollout) => chosen.includes(rollout.repeat))
        .map((rollout) => ({
          key: String(rollout.repeat),
          title: `Repeat ${rollout.repeat}`,
          to: href({ page: "rollout", run: page.run, task: page.task, repeat: rollout.repeat }),
          rollout,
        })),
    [page, chosen.join()],
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
      {page.title && (
        <p class="task-title" dir="auto">
          {visible(page.title)}
        </p>
      )}
      <Chooser
        title="Repeats"
        all={page.all}
        loaded={new Set(page.repeats.map((rollout) => rollout.repeat))}
        chosen={chosen}
        onChange={(repeats) => setParameter(repeats.join(","))}
      />
      {columns.length === 0 ? <Empty title="Choose repeats to compare" /> : <Columns rollouts={columns} />}
    </div>
  );
}
