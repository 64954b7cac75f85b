/** Load a rollout with its neighbours in the filtered table, and the rest of a large one on demand. */

import { useState } from "preact/hooks";
import type { Item, Rollout } from "../api";
import { messageOf, useLoaded } from "../data";
import { useSource } from "../source";
import { sharedQuery, useParameter, useRoute, viewOf } from "../state";

export interface LoadedRollout {
  rollout: Rollout | null;
  error: string | null;
  isLoading: boolean;
  /** Items that are not loaded yet. */
  omitted: number;
  loadMore(): void;
  reload(): void;
}

interface More {
  key: string;
  items: Item[];
  omitted: number;
  error: string | null;
}

export function useRollout(run: string, task: number, repeat: number): LoadedRollout {
  const source = useSource();
  const { query } = useRoute();
  const [attempt] = useParameter("attempt");
  const { filter, sort, order } = viewOf(query);
  const options = { filter, sort, order, ...(attempt === null ? {} : { attempt: Number(attempt) }) };
  const key = `${run}/${task}/${repeat}/${attempt ?? ""}?${sharedQuery(query).toString()}`;
  const loaded = useLoaded(key, (signal) => source.rollout(run, task, repeat, options, signal));
  const [more, setMore] = useState<More | null>(null);
  const mine = more?.key === key ? more : null;
  const first = loaded.data;
  const isOther = first !== null && first.run !== run;
  const rollout =
    first === null || isOther ? null : mine ? { ...first, items: [...first.items, ...mine.items] } : first;
  const loadMore = (): void => {
    if (rollout === null) return;
    source.rollout(run, task, repeat, { ...options, from: rollout.items.length }).then(
      (rest) => setMore({ key, items: [...(mine?.items ?? []), ...rest.items], omitted: rest.omitted, error: null }),
      (error: unknown) =>
        setMore({ key, items: mine?.items ?? [], omitted: mine?.omitted ?? rollout.omitted, error: messageOf(error) }),
    );
  };
  return {
    rollout,
    error: loaded.error ?? mine?.error ?? null,
    isLoading: loaded.isLoading,
    omitted: mine?.omitted ?? first?.omitted ?? 0,
    loadMore,
    reload: loaded.reload,
  };
}
