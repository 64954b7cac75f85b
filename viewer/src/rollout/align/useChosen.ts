/** The rollouts that are shown side by side: the server sends only the first repeats together with their task. */

import type { Rollout, TaskPage } from "../../api";
import { useLoaded } from "../../data";
import { useSource } from "../../source";

export interface Choice {
  page: TaskPage;
  repeat: number;
}

interface Chosen {
  /** Those that are there, in the order of the choices. */
  rollouts: Rollout[];
  isLoading: boolean;
  error: string | null;
  reload(): void;
}

export function useChosen(choices: readonly Choice[]): Chosen {
  const source = useSource();
  const missing = choices.filter(({ page, repeat }) => page.repeats.every((each) => each.repeat !== repeat));
  const key = missing.map(({ page, repeat }) => `${page.run}/${page.task}/${repeat}`).join();
  const loaded = useLoaded(key || null, (signal) =>
    Promise.all(missing.map(({ page, repeat }) => source.rollout(page.run, page.task, repeat, {}, signal))),
  );
  const more = loaded.data ?? [];
  const rollouts = choices.flatMap(
    ({ page, repeat }) =>
      [...page.repeats, ...more].find(
        (each) => each.run === page.run && each.task === page.task && each.repeat === repeat,
      ) ?? [],
  );
  return { rollouts, isLoading: loaded.isLoading, error: key ? loaded.error : null, reload: loaded.reload };
}
