/** A reward, coloured by what it says: a reward of 0 is scored, too, but nothing to be green about. */

import { MISSING, number } from "./format";

export function Reward({ value }: { value: number | null }) {
  return <span class={toneOf(value)}>{value === null ? MISSING : number(value)}</span>;
}

function toneOf(value: number | null): string | undefined {
  if (value === null) return "dim";
  return value >= 1 ? "reward-full" : value <= 0 ? "reward-none" : undefined;
}
