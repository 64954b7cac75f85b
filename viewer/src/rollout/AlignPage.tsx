/** A task of several runs: one rollout of each, side by side. */

import { useMemo } from "preact/hooks";
import type { TaskPage } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { href, navigate, useParameter } from "../state";
import { Empty, ErrorNote, Spinner, useShortcuts } from "../ui";
import { number } from "../ui/format";
import { Columns } from "./align/Columns";
import { numbersOf, widestRepeat } from "./align/choice";
import { visible } from "./text/visible";
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
  const usual = useMemo(() => widestRepeat(tasks.map(({ page }) => page)), [tasks]);
  const asked = numbersOf(parameter ?? "");
  const chosen = usual.map((repeat, index) => asked[index] ?? repeat);
  const columns = useMemo(
    () =>
      tasks.flatMap(({ name, page }, index) => {
        const rollout = page.repeats.find((each) => each.repeat === chosen[index]);
        if (rollout === undefined) return [];
        const to = href({ page: "rollout", run: page.run, task, repeat: rollout.repeat });
        return [{ key: page.run, title: `${name} · repeat ${rollout.repeat}`, to, rollout }];
      }),
    [tasks, task, chosen.join()],
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
      {tasks[0]?.page.title && (
        <p class="task-title" dir="auto">
          {visible(tasks[0].page.title)}
        </p>
      )}
      <div class="align-choices">
        {tasks.map(({ name, page }, index) => (
          <label key={page.run}>
            {name}{" "}
            <select
              class="field"
              value={chosen[index]}
              onChange={(event) => choose(index, Number(event.currentTarget.value))}
            >
              {page.repeats.map(({ repeat, outcome, reward }) => (
                <option key={repeat} value={repeat}>
                  repeat {repeat}: {reward === null ? outcome : number(reward)}
                </option>
              ))}
            </select>
          </label>
        ))}
      </div>
      <Columns rollouts={columns} />
    </div>
  );
}
