/** Which rollouts are shown at first. */

import type { TaskPage } from "../../api";

/** Columns at first: as many as can be read at the width of the window. */
function usualColumns(): number {
  return innerWidth < 700 ? 2 : innerWidth < 1500 ? 3 : 4;
}

/** Repeats with different rewards first, because they show what decides. */
export function firstChoice(page: TaskPage): number[] {
  const seen = new Set<string>();
  const different: number[] = [];
  const others: number[] = [];
  for (const { repeat, outcome, reward } of page.repeats) {
    const result = `${outcome} ${reward}`;
    (seen.has(result) ? others : different).push(repeat);
    seen.add(result);
  }
  return [...different, ...others].slice(0, usualColumns()).sort((a, b) => a - b);
}

export function numbersOf(text: string): number[] {
  return text
    .split(",")
    .filter((part) => /^\d+$/.test(part))
    .map(Number);
}

/** The repeat of each run with which to begin: the same one, where the rewards differ most. */
export function widestRepeat(pages: readonly TaskPage[]): number[] {
  const [first] = pages;
  let best: { repeat: number; distance: number } | null = null;
  for (const { repeat } of first?.repeats ?? []) {
    const rewards = pages.map((page) => page.repeats.find((each) => each.repeat === repeat));
    if (rewards.some((each) => each === undefined)) continue;
    const values = rewards.map((each) => each?.reward ?? 0);
    const distance = Math.max(...values) - Math.min(...values);
    if (best === null || distance > best.distance) best = { repeat, distance };
  }
  return pages.map((page) => best?.repeat ?? page.repeats[0]?.repeat ?? 0);
}
