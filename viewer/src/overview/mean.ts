/** The mean reward over several agents. */

import type { Overview } from "../api";

export function meanOf(rewards: Overview["rewards"]): number | null {
  const counts = rewards.map((each) => each.counts.reduce((sum, bin) => sum + bin, 0));
  const total = counts.reduce((sum, each) => sum + each, 0);
  return total === 0 ? null : rewards.reduce((sum, each, at) => sum + each.mean * (counts[at] ?? 0), 0) / total;
}
