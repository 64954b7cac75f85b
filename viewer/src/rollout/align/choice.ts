/** Which rollouts are shown next to each other. */

import type { TaskPage } from "../../api";
import { amount, number } from "../../ui/format";

type Repeat = TaskPage["all"][number];

/** More columns are too narrow to read. */
export const MOST_COLUMNS = 6;
const MOST_RESULTS = 20;

/** Columns at first: as many as can be read at the width of the window. */
function usualColumns(): number {
  return innerWidth < 700 ? 2 : innerWidth < 1500 ? 3 : 4;
}

/** A way to choose repeats, such as "the best". */
export interface Preset {
  label: string;
  repeats: number[];
}

/** Repeats with different results, because they show what decides. */
export function firstChoice(all: readonly Repeat[]): number[] {
  const first = [...byResult(all).values()].flatMap(([each]) => each ?? []);
  const others = all.filter((each) => !first.includes(each));
  return chosenOf([...first, ...others]);
}

export function presetsOf(all: readonly Repeat[]): Preset[] {
  const scored = all.filter(({ reward }) => reward !== null);
  const best = [...scored].sort((a, b) => (b.reward ?? 0) - (a.reward ?? 0));
  const results = [...byResult(all)].sort(([, a], [, b]) => b.length - a.length).slice(0, MOST_RESULTS);
  return [
    { label: "different results", repeats: firstChoice(all) },
    { label: "the best", repeats: chosenOf(best) },
    { label: "the worst", repeats: chosenOf([...best].reverse()) },
    ...results.map(([result, those]) => ({
      label: `${result} (${amount(those.length, "repeat")})`,
      repeats: chosenOf(those),
    })),
  ];
}

/** The result of a repeat in words: "reward 0.5" or "failed". */
export function resultOf({ outcome, reward }: Repeat): string {
  return reward === null ? outcome : `reward ${number(reward)}`;
}

function byResult(all: readonly Repeat[]): Map<string, Repeat[]> {
  const groups = new Map<string, Repeat[]>();
  for (const each of all) {
    const result = resultOf(each);
    const group = groups.get(result);
    if (group) group.push(each);
    else groups.set(result, [each]);
  }
  return groups;
}

function chosenOf(repeats: readonly Repeat[]): number[] {
  return repeats
    .slice(0, usualColumns())
    .map(({ repeat }) => repeat)
    .sort((a, b) => a - b);
}

export function numbersOf(text: string): number[] {
  return text
    .split(",")
    .filter((part) => /^\d{1,15}$/.test(part))
    .map(Number);
}

/** The repeat of each run with which to begin: the same one, where the rewards differ most. */
export function widestRepeat(pages: readonly TaskPage[]): number[] {
  const rewards = pages.map(({ all }) => new Map(all.map(({ repeat, reward }) => [repeat, reward ?? 0])));
  let best: { repeat: number; distance: number } | null = null;
  for (const { repeat } of pages[0]?.all ?? []) {
    const values = rewards.flatMap((each) => each.get(repeat) ?? []);
    if (values.length < pages.length) continue;
    const distance = Math.max(...values) - Math.min(...values);
    if (best === null || distance > best.distance) best = { repeat, distance };
  }
  return pages.map(({ all }) => best?.repeat ?? all[0]?.repeat ?? 0);
}
