/**
 * What the shared filter and the sort order mean, for data that is in the page. The server's index
 * (nemo_gym/viewer/filters.py) answers the same questions by SQL; both must agree.
 */
import type { Filter, Item, Json, JsonObject, Part, Rollout, RolloutRow } from "./api";

/** A row of the table with the rollout that it describes, if that is included. */
export interface Known {
  row: RolloutRow;
  rollout: Rollout | undefined;
}

export type Order = "asc" | "desc";

export function isEmpty(filter: Filter): boolean {
  return Object.values(filter).every((value) => value === undefined || (Array.isArray(value) && value.length === 0));
}

export function matches(known: Known, filter: Filter): boolean {
  const { row } = known;
  return (
    isOneOf(row.agent, filter.agent) &&
    isOneOf(row.task, filter.task) &&
    isOneOf(row.repeat, filter.repeat) &&
    isOneOf(row.outcome, filter.outcome) &&
    isOneOf(row.failure, filter.failure) &&
    isOneOf(row.tier, filter.tier) &&
    isOneOf(row.server, filter.server) &&
    isBetween(row.reward, filter.reward_min, filter.reward_max) &&
    isBetween(row.steps, filter.steps_min, filter.steps_max) &&
    (filter.star === undefined || row.star === filter.star) &&
    (filter.commented === undefined || row.has_comment === filter.commented) &&
    (!filter.tag?.length || filter.tag.some((tag) => row.tags.includes(tag))) &&
    usesTool(known, filter.tool, filter.tool_failed) &&
    hasFields(known, filter.field) &&
    hasWords(known, filter.words)
  );
}

/** Compare two rows by a column; missing values are last in both orders, and equal ones are ordered by task and repeat. */
export function compareRows(a: Known, b: Known, sort: string, order: Order): number {
  const sign = order === "desc" ? -1 : 1;
  if (sort === "task") return sign * (a.row.task - b.row.task || a.row.repeat - b.row.repeat);
  const left = sortValue(a, sort);
  const right = sortValue(b, sort);
  if (isMissing(left) !== isMissing(right)) return isMissing(left) ? 1 : -1;
  const difference = sign * compareValues(left, right);
  return difference || a.row.task - b.row.task || a.row.repeat - b.row.repeat;
}

/** The value of a field of a row, such as `grading_mode` or `metadata.subset`; undefined if it has none. */
export function fieldOf({ row, rollout }: Known, name: string): Json | undefined {
  const known = row.fields[name];
  if (known !== undefined && known !== null) return known;
  if (!rollout) return undefined;
  const { graded, given, reward_components } = rollout;
  return valueAt(graded, name) ?? valueAt(given, name) ?? valueAt({ reward_components }, name);
}

function isOneOf<T>(value: T | null, wanted: T[] | undefined): boolean {
  return !wanted?.length || (value !== null && wanted.includes(value));
}

function isBetween(value: number | null, low: number | undefined, high: number | undefined): boolean {
  if (low === undefined && high === undefined) return true;
  return value !== null && value >= (low ?? -Infinity) && value <= (high ?? Infinity);
}

function usesTool({ rollout }: Known, tools: string[] | undefined, failed: boolean | undefined): boolean {
  if (!tools?.length && failed === undefined) return true;
  const calls = rollout?.items.flatMap((item) => (item.kind === "tool" && isOneOf(item.name, tools) ? item : [])) ?? [];
  return failed === false ? !calls.some((call) => call.failed) : calls.some((call) => call.failed || !failed);
}

/** Values of one name are alternatives; every name must have one of its values. */
function hasFields(known: Known, wanted: string[] | undefined): boolean {
  if (!wanted?.length) return true;
  const valuesOf = new Map<string, string[]>();
  for (const each of wanted) {
    const at = each.indexOf("=");
    const name = each.slice(0, at);
    valuesOf.set(name, [...(valuesOf.get(name) ?? []), each.slice(at + 1)]);
  }
  return [...valuesOf].every(([name, values]) => {
    const value = fieldOf(known, name);
    return value !== undefined && values.some((each) => isSame(value, each));
  });
}

function isSame(value: Json, wanted: string): boolean {
  if (typeof value === "number") return wanted.trim() !== "" && Number(wanted) === value;
  return String(value) === wanted;
}

function hasWords({ row, rollout }: Known, words: string | undefined): boolean {
  if (!words) return true;
  const wanted = words.toLowerCase();
  if (!rollout) return row.title.toLowerCase().includes(wanted);
  return rollout.items.some((item) => textsOf(item).some((text) => text.toLowerCase().includes(wanted)));
}

function textsOf(item: Item): string[] {
  if (item.kind === "message") return item.parts.map(textOf);
  if (item.kind === "reasoning") return [item.text];
  if (item.kind === "tool") return [item.name, asText(item.arguments), ...(item.result ?? []).map(textOf)];
  return [asText(item.value)];
}

function textOf(part: Part): string {
  return "text" in part ? part.text : "";
}

function asText(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function sortValue(known: Known, sort: string): Json | undefined {
  if (sort in SORTED) return known.row[sort as keyof typeof SORTED];
  return fieldOf(known, sort);
}

const SORTED = {
  agent: 1, outcome: 1, reward: 1, failure: 1, attempts: 1, steps: 1, tool_calls: 1,
  input_tokens: 1, output_tokens: 1, seconds: 1, bytes: 1,
} as const;

function isMissing(value: Json | undefined): boolean {
  return value === null || value === undefined;
}

function compareValues(a: Json | undefined, b: Json | undefined): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [left, right] = [String(a), String(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

function valueAt(fields: JsonObject, name: string): Json | undefined {
  if (Object.hasOwn(fields, name)) return fields[name];
  let value: Json | undefined = fields;
  for (const part of name.split(".")) {
    if (value === null || typeof value !== "object" || Array.isArray(value) || !Object.hasOwn(value, part)) return undefined;
    value = value[part];
  }
  return value;
}
