/** The rollouts that are shown side by side: the server sends only the first repeats together with their task. */

import type { Rollout, TaskPage } from "../../api";
import { messageOf, useLoaded } from "../../data";
import { useSource } from "../../source";
import type { Source } from "../../source";

export interface Choice {
  page: TaskPage;
  repeat: number;
}

interface Chosen {
  /** Those that are there, in the order of the choices. */
  rollouts: Rollout[];
  isLoading: boolean;
  /** Why some of them are not there. */
  error: string | null;
  reload(): void;
}

interface More {
  rollouts: Rollout[];
  problems: string[];
}

export function useChosen(choices: readonly Choice[]): Chosen {
  const source = useSource();
  const missing = choices.filter(({ page, repeat }) => page.repeats.every((each) => each.repeat !== repeat));
  const key = missing.map(({ page, repeat }) => `${page.run}/${page.task}/${repeat}`).join();
  const loaded = useLoaded(key || null, (signal) => loadEach(source, missing, signal));
  const more = loaded.data ?? { rollouts: [], problems: [] };
  const rollouts = choices.flatMap(
    ({ page, repeat }) =>
      [...page.repeats, ...more.rollouts].find(
        (each) => each.run === page.run && each.task === page.task && each.repeat === repeat,
      ) ?? [],
  );
  const problems = key && !loaded.isLoading ? more.problems.join(" ") : "";
  return { rollouts, isLoading: loaded.isLoading, error: problems || null, reload: loaded.reload };
}

/** Load each choice by itself, because one that cannot be shown must not hide the others. */
async function loadEach(source: Source, choices: readonly Choice[], signal: AbortSignal): Promise<More> {
  const more: More = { rollouts: [], problems: [] };
  const replies = await Promise.allSettled(
    choices.map(({ page, repeat }) => source.rollout(page.run, page.task, repeat, {}, signal)),
  );
  replies.forEach((reply, index) => {
    if (reply.status === "fulfilled") more.rollouts.push(reply.value);
    else if (!signal.aborted) more.problems.push(`Repeat ${choices[index]?.repeat}: ${messageOf(reply.reason)}`);
  });
  return more;
}
