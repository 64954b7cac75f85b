/** Align the conversations of several rollouts step by step. */

import type { Item, Part } from "../../api";
import { bestPairs } from "../text/difference";

/** One step: an item per rollout, or null if the rollout has no such step. */
export interface Step {
  items: (Item | null)[];
  /** Every rollout has this step, with equal content. */
  isEqual: boolean;
}

export interface Alignment {
  steps: Step[];
  /** The first step that is not equal; null if all are. */
  parted: number | null;
}

/** Longer conversations are paired by position: the table of an alignment grows with the square. */
const MOST_STEPS = 1_500;

export function align(conversations: readonly (readonly Item[])[]): Alignment {
  let rows: (Item | null)[][] = (conversations[0] ?? []).map((item) => [item]);
  for (let column = 1; column < conversations.length; column++) {
    rows = merge(rows, conversations[column] ?? [], column);
  }
  const steps = rows.map((items) => ({ items, isEqual: areEqual(items) }));
  const parted = steps.findIndex((step) => !step.isEqual);
  return { steps, parted: parted < 0 ? null : parted };
}

function merge(rows: (Item | null)[][], items: readonly Item[], column: number): (Item | null)[][] {
  const kinds = rows.map((row) => new Set(row.map(kindOf)));
  const contents = rows.map((row) => new Set(row.map(contentOf)));
  const newKinds = items.map(kindOf);
  const newContents = items.map(contentOf);
  const turns = rows.map((row) => row.find((item) => item !== null)?.turn ?? null);
  const score = (i: number, j: number): number => {
    const kind = newKinds[j] ?? "";
    if (contents[i]?.has(newContents[j] ?? "")) return 4;
    if (!kinds[i]?.has(kind)) return 0;
    return turns[i] === (items[j]?.turn ?? null) ? 2 : 1;
  };
  const pairs =
    Math.max(rows.length, items.length) > MOST_STEPS
      ? byPosition(rows.length, items.length)
      : bestPairs(rows.length, items.length, score);
  return interleave(rows, items, pairs, column);
}

function byPosition(rows: number, items: number): [number, number][] {
  return Array.from({ length: Math.min(rows, items) }, (_, index) => [index, index]);
}

function interleave(
  rows: (Item | null)[][],
  items: readonly Item[],
  pairs: [number, number][],
  column: number,
): (Item | null)[][] {
  const merged: (Item | null)[][] = [];
  const none: null[] = Array.from({ length: column }, () => null);
  let i = 0;
  let j = 0;
  for (const [row, item] of [...pairs, [rows.length, items.length] as const]) {
    for (; i < row; i++) merged.push([...(rows[i] ?? none), null]);
    for (; j < item; j++) merged.push([...none, items[j] ?? null]);
    if (row === rows.length) break;
    merged.push([...(rows[i++] ?? none), items[j++] ?? null]);
  }
  return merged;
}

function areEqual(items: (Item | null)[]): boolean {
  const first = contentOf(items[0] ?? null);
  return first !== "" && items.every((item) => contentOf(item) === first);
}

/** Items of one kind may be paired although they differ. */
function kindOf(item: Item | null): string {
  if (item === null) return "";
  if (item.kind === "message") return `message ${item.role} ${item.in_prompt}`;
  if (item.kind === "tool") return `tool ${item.name}`;
  return item.kind === "other" ? `other ${item.type}` : item.kind;
}

/** The content without ids and times, which differ between rollouts that did the same. */
export function contentOf(item: Item | null): string {
  if (item === null) return "";
  if (item.kind === "message") return `${kindOf(item)}\n${partsText(item.parts)}`;
  if (item.kind === "reasoning") return `reasoning\n${item.text}`;
  if (item.kind === "tool") {
    return `${kindOf(item)}\n${JSON.stringify(item.arguments)}\n${item.failed}\n${partsText(item.result ?? [])}`;
  }
  return `${kindOf(item)}\n${JSON.stringify(item.value)}`;
}

function partsText(parts: readonly Part[]): string {
  return parts
    .map((part) => ("text" in part ? part.text : `${part.kind} ${mediumOf(part.source)} ${part.note ?? ""}`))
    .join("\n");
}

/** The data of a medium, or else its number in the conversation: the rest of its address names the rollout. */
function mediumOf(source: string | null): string {
  if (source === null || source.startsWith("data:")) return source ?? "";
  return new URLSearchParams(source.split("?")[1] ?? "").get("n") ?? "";
}
