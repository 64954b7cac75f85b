/** A reward, coloured by what it says: a reward of 0 is scored, too, but nothing to be green about. */

import { number } from "./format";

interface Props {
  value: number | null;
  show?: (value: number | null) => string;
}

export function Reward({ value, show = number }: Props) {
  return <span class={toneOf(value)}>{show(value)}</span>;
}

function toneOf(value: number | null): string | undefined {
  if (value === null) return "dim";
  return value >= 1 ? "reward-full" : value <= 0 ? "reward-none" : undefined;
}
