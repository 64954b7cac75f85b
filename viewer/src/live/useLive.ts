/** The state of a running collection, with its history since the reader first looked at it. */
import { useEffect, useState } from "preact/hooks";
import { useIsVisible } from "../data";
import type { LiveStatus, Run } from "../api";
import { useSource } from "../source";

export interface Sample {
  /** Milliseconds since the epoch. */
  at: number;
  status: LiveStatus;
}

export interface Live {
  /** One per second, the latest one last. At most those of 15 minutes. */
  samples: Sample[];
  /** The final state, once the collection has ended. */
  ended: Run | null;
  isBroken: boolean;
}

const MOST_SAMPLES = 900;
const RETRY_MS = 5000;
const NOTHING: Live = { samples: [], ended: null, isBroken: false };
/** What was seen of each run, for the next visit of its page. */
const seen = new Map<string, Live>();

export function useLive(run: string): Live {
  const source = useSource();
  const [live, setLive] = useState(seen.get(run) ?? NOTHING);
  const [round, setRound] = useState(0);
  const isVisible = useIsVisible();

  useEffect(() => setLive(seen.get(run) ?? NOTHING), [run]);
  // A hidden tab would keep one of the browser's six connections, and the server busy.
  useEffect(() => {
    if (!isVisible) return;
    return source.follow(run, {
      onStatus: (status) => {
        const before = seen.get(run)?.samples.slice(1 - MOST_SAMPLES) ?? [];
        const now = { ...NOTHING, samples: [...before, { at: Date.now(), status }] };
        seen.set(run, now);
        setLive(now);
      },
      onEnded: (ended) => setLive((old) => ({ ...old, ended, isBroken: false })),
      onBroken: (isBroken) => setLive((old) => (old.isBroken === isBroken ? old : { ...old, isBroken })),
    });
  }, [source, run, round, isVisible]);
  // Browsers reconnect after a lost connection, but not after an error status.
  useEffect(() => {
    if (!live.isBroken) return;
    const timer = setInterval(() => setRound((old) => old + 1), RETRY_MS);
    return () => clearInterval(timer);
  }, [live.isBroken]);
  return live;
}
