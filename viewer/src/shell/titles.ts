/** Names of the pages. */

import type { Page } from "../state";

export const PAGE_NAMES: Record<Page["page"], string> = {
  runs: "Runs",
  overview: "Overview",
  tasks: "Tasks",
  tools: "Tools",
  training: "Training",
  rollouts: "Rollouts",
  live: "Live",
  rollout: "Rollout",
  task: "Task",
  compare: "Compare",
  align: "Side by side",
  unknown: "Not found",
};

/** The title of the window. */
export function titleOf(page: Page, runName: string | null): string {
  const name = "task" in page ? `${PAGE_NAMES[page.page]} ${placeOf(page)}` : PAGE_NAMES[page.page];
  return runName ? `${name} · ${runName}` : name;
}

function placeOf(page: { task: number; repeat?: number }): string {
  return page.repeat === undefined ? String(page.task) : `${page.task}:${page.repeat}`;
}
