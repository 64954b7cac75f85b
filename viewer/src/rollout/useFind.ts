/** The state of a search in the page: the hits are marked again whenever the content changes. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { highlight, marksOf, rangesOf, reveal } from "./find";

export interface Find {
  hits: number;
  /** The hit shown, from 1; 0 before the first step. */
  current: number;
  step(by: 1 | -1): void;
}

/** Content arrives in many steps (formulas, folds, images), so marking waits until it has been quiet for this long. */
const QUIET_MS = 60;

export function useFind(root: RefObject<HTMLElement | null>, words: string): Find {
  const ranges = useRef<Range[]>([]);
  const [hits, setHits] = useState(0);
  const [current, setCurrent] = useState(0);
  useEffect(() => {
    const place = root.current;
    if (place === null) return;
    const mark = (): void => {
      ranges.current = rangesOf(place, words);
      highlight("found", ranges.current);
      highlight("invisible", marksOf(place));
      setHits(ranges.current.length);
    };
    let timer = 0;
    const later = (): void => {
      clearTimeout(timer);
      timer = setTimeout(mark, QUIET_MS);
    };
    const observer = new MutationObserver(later);
    observer.observe(place, { childList: true, subtree: true, characterData: true });
    later();
    return () => {
      clearTimeout(timer);
      observer.disconnect();
      for (const name of ["found", "found-now", "invisible"] as const) highlight(name, []);
    };
  }, [root, words]);
  useEffect(() => setCurrent(0), [words]);
  const step = useCallback(
    (by: 1 | -1) => {
      const all = ranges.current;
      if (all.length === 0) return;
      const next = current === 0 ? (by > 0 ? 1 : all.length) : ((current - 1 + by + all.length) % all.length) + 1;
      setCurrent(next);
      const range = all[next - 1];
      if (range === undefined) return;
      highlight("found-now", [range]);
      reveal(range);
    },
    [current],
  );
  return { hits, current: Math.min(current, hits), step };
}
