/** A task of several runs: one rollout of each, side by side. */

import { useMemo } from "preact/hooks";
import type { TaskPage } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { href, navigate, useParameter } from "../state";
import { Empty, ErrorNote, Spinner, useShortcuts } from "../ui";
import { useTitle } from "../ui/title";
import { Columns } from "./align/Columns";
import { numbersOf, resultOf, widestRepeat } from "./align/choice";
import { TaskTitle } from "./align/TaskTitle";
import { useChosen } from "./align/useChosen";
import "./align/align.css";
import "./conversation/conversation.css";
import "./rollout.css";
import "./text/text.css";

interface RunTask {
  name: string;
  page: TaskPage;
}

export default function AlignPage({ runs, task }: { runs: string[]; task: number }) {
  const source = useSource();
  const loaded = useLoaded(runs.length > 0 ? `${runs.join("/")}/${task}` : null, (signal) =>
    Promise.all(
      runs.map(async (run): Promise<RunTask> => {
        const [page, { name }] = await Promise.all([source.task(run, task, signal), source.run(run, signal)]);
        return { name, page };
      }),
    ),
  );
  useShortcuts([
    { keys: ["Escape"], label: "Back to the comparison", act: () => navigate(href({ page: "compare", runs })) },
  ]);
  if (runs.length === 0)
    return <Empty title="No runs in the address">Choose runs in the list of runs, and compare them.</Empty>;
  if (loaded.error !== null) return <ErrorNote message={loaded.error} onRetry={loaded.reload} />;
  if (loaded.data === null || loaded.isLoading) return <Spinner label="Loading the task of each run" />;
  return <SideBySide tasks={loaded.data} task={task} runs={runs} />;
}

function SideBySide({ tasks, task, runs }: { tasks: RunTask[]; task: number; runs: string[] }) {
  const [parameter, setParameter] = useParameter("show");
  useTitle(`Task ${task} · ${tasks.map(({ name }) => name).join(", ")}`);
  const usual = useMemo(() => widestRepeat(tasks.map(({ page }) => page)), [tasks]);
  const asked = numbersOf(parameter ?? "");
  const chosen = usual.map((repeat, index) => asked[index] ?? repeat);
  const { rollouts, isLoading, error, reload } = useChosen(
    tasks.map(({ page }, index) => ({ page, repeat: chosen[index] ?? 0 })),
  );
  const shown = rollouts.map(({ run, repeat, attempt }) => `${run}:${repeat}:${attempt}`).join();
  const columns = useMemo(
    () =>
      rollouts.map((rollout) => {
        const name = tasks.find(({ page }) => page.run === rollout.run)?.name ?? rollout.run;
        const to = href({ page: "rollout", run: rollout.run, task, repeat: rollout.repeat });
        return { key: rollout.run, title: `${name} · repeat ${rollout.repeat}`, to, rollout };
      }),
    [tasks, task, shown],
  );
  const choose = (index: number, repeat: number): void =>
    setParameter(chosen.map((old, at) => (at === index ? repeat : old)).join(","));
  return (
    <div class="task">
      <header class="rollout-title">
        <h1>Task {task}</h1>
        <a class="button" href={href({ page: "compare", runs })}>
          Back to the comparison
        </a>
      </header>
      <TaskTitle title={tasks[0]?.page.title ?? ""} />
      <div class="align-choices">
        {tasks.map(({ name, page }, index) => (
          <label key={page.run}>
            {name}{" "}
            <select
              class="field"
              value={chosen[index]}
              onChange={(event) => choose(index, Number(event.currentTarget.value))}
            >
              {page.all.map((each) => (
                <option key={each.repeat} value={each.repeat}>
                  repeat {each.repeat}: {resultOf(each)}
                </option>
              ))}
            </select>
          </label>
        ))}
      </div>
      {error !== null && <ErrorNote message={error} onRetry={reload} />}
      {isLoading && <Spinner label="Loading the repeat" />}
      <Columns rollouts={columns} />
    </div>
  );
}
