/** Load data for a page: old data stay while newer ones are loading, and replies that come too late are dropped. */

import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import type { Facets, Run } from "./api";
import { isAbort, useSource } from "./source";

export interface Loaded<T> {
  /** Null until the first reply. */
  data: T | null;
  /** Why the latest request failed. The data of an earlier one may still be there. */
  error: string | null;
  /** Whether the data are missing or belong to an earlier key: show them dimmed. */
  isLoading: boolean;
  /** Load the same again, for example because a run has grown. */
  reload(): void;
}

/** Load whatever `key` names; a null key loads nothing. Data of another key remain until the new ones are there. */
export function useLoaded<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: string | null; key: string | null }>({
    data: null,
    error: null,
    key: null,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    if (key === null) return;
    const controller = new AbortController();
    latest.current(controller.signal).then(
      (data) => {
        if (!controller.signal.aborted) setState({ data, error: null, key });
      },
      (error: unknown) => {
        if (controller.signal.aborted || isAbort(error)) return;
        setState((old) => ({ data: old.data, error: messageOf(error), key }));
      },
    );
    return () => controller.abort();
  }, [key, round]);
  return {
    data: state.data,
    error: state.error,
    isLoading: key !== null && state.key !== key,
    reload: () => setRound((old) => old + 1),
  };
}

/** The text of an error for the user; a bug of the page is also logged. */
export function messageOf(error: unknown): string {
  if (error instanceof Error) {
    if (error.name !== "ApiError") console.error(error);
    return error.message;
  }
  return String(error);
}

/** Call `act` every `seconds`, one call after the other, while the page is visible. Null stops it. */
export function useEvery(seconds: number | null, act: () => void): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    if (seconds === null) return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") latest.current();
    }, seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}

/** Whether the tab of the page is visible. */
export function useIsVisible(): boolean {
  const [isVisible, setIsVisible] = useState(!document.hidden);
  useEffect(() => {
    const listener = () => setIsVisible(!document.hidden);
    document.addEventListener("visibilitychange", listener);
    return () => document.removeEventListener("visibilitychange", listener);
  }, []);
  return isVisible;
}

/** Whether a run may still change: it is running, or its files are still being indexed. */
export function isChanging(run: Run): boolean {
  return run.is_live || run.state === "running" || run.indexed.bytes < run.indexed.of;
}

const NOTHING: Loaded<never> = { data: null, error: null, isLoading: false, reload: () => undefined };

export const RunContext = createContext<Loaded<Run>>(NOTHING);

/** The run that the address names, loaded by the shell. */
export function useCurrentRun(): Loaded<Run> {
  return useContext(RunContext);
}

/** A run, loaded again every second while it changes. */
export function useRun(id: string | null): Loaded<Run> {
  const source = useSource();
  const loaded = useLoaded(id, (signal) => source.run(id ?? "", signal));
  const mayChange = source.isLive && loaded.data !== null && isChanging(loaded.data);
  useEvery(mayChange ? 1 : null, loaded.reload);
  return loaded.data?.id === id ? loaded : { ...loaded, data: null };
}

/** What the filter offers for a run. */
export function useFacets(run: string | null): Loaded<Facets> {
  const source = useSource();
  return useLoaded(run, (signal) => source.facets(run ?? "", signal));
}
