/** What the filter can narrow down, and how each part of it reads. */

import type { Count, Facets, Filter } from "../api";
import { number } from "../ui/format";

export type ListName = "agent" | "outcome" | "failure" | "tier" | "server" | "tool" | "tag";

export type Dimension =
  | { kind: "values"; name: ListName; label: string }
  | { kind: "field"; name: string; label: string }
  | { kind: "range"; name: "reward" | "steps"; label: string }
  | { kind: "numbers"; name: "task" | "repeat"; label: string }
  | { kind: "flag"; name: "star" | "commented" | "tool_failed"; label: string };

const DIMENSIONS: Dimension[] = [
  { kind: "values", name: "agent", label: "Agent" },
  { kind: "values", name: "outcome", label: "Outcome" },
  { kind: "range", name: "reward", label: "Reward" },
  { kind: "range", name: "steps", label: "Steps" },
  { kind: "values", name: "tool", label: "Tool used" },
  { kind: "flag", name: "tool_failed", label: "A tool failed" },
  { kind: "values", name: "failure", label: "Failure" },
  { kind: "values", name: "tier", label: "Tier of the failure" },
  { kind: "values", name: "server", label: "Server of the failure" },
  { kind: "numbers", name: "task", label: "Task" },
  { kind: "numbers", name: "repeat", label: "Repeat" },
  { kind: "flag", name: "star", label: "Starred" },
  { kind: "values", name: "tag", label: "Tag" },
  { kind: "flag", name: "commented", label: "With a comment" },
];

/** What is worth offering for these data: no list without values. */
export function offered(facets: Facets): Dimension[] {
  const fields = facets.fields.map(({ name }): Dimension => ({ kind: "field", name, label: name }));
  const useful = DIMENSIONS.filter((dimension) => {
    if (dimension.kind === "values") return valuesOf(facets, dimension).length > 0;
    if (dimension.name === "tool_failed") return facets.tools.length > 0;
    return dimension.kind !== "range" || facets[dimension.name] !== null;
  });
  return [...useful, ...fields];
}

export function valuesOf(facets: Facets, dimension: Dimension): Count[] {
  if (dimension.kind === "field") return facets.fields.find((field) => field.name === dimension.name)?.values ?? [];
  if (dimension.kind !== "values") return [];
  switch (dimension.name) {
    case "agent":
      return facets.agents;
    case "outcome":
      return facets.outcomes;
    case "failure":
      return facets.failures;
    case "tier":
      return facets.tiers;
    case "server":
      return facets.servers;
    case "tool":
      return facets.tools;
    case "tag":
      return facets.tags;
  }
}

/** The values of a dimension that the filter asks for. */
export function chosenOf(filter: Filter, dimension: Dimension): string[] {
  if (dimension.kind === "values") return filter[dimension.name] ?? [];
  if (dimension.kind === "numbers") return (filter[dimension.name] ?? []).map(String);
  if (dimension.kind !== "field") return [];
  const start = `${dimension.name}=`;
  return (filter.field ?? []).filter((text) => text.startsWith(start)).map((text) => text.slice(start.length));
}

/** The filter with these values of a dimension instead of its former ones. */
export function withChosen(filter: Filter, dimension: Dimension, chosen: string[]): Filter {
  if (dimension.kind === "field") {
    const others = (filter.field ?? []).filter((text) => !text.startsWith(`${dimension.name}=`));
    return withList(filter, "field", [...others, ...chosen.map((value) => `${dimension.name}=${value}`)]);
  }
  if (dimension.kind === "numbers") return withList(filter, dimension.name, chosen.map(Number));
  return dimension.kind === "values" ? withList(filter, dimension.name, chosen) : filter;
}

function withList(filter: Filter, name: string, list: unknown[]): Filter {
  const { [name as keyof Filter]: _, ...rest } = filter;
  return list.length > 0 ? { ...rest, [name]: list } : rest;
}

export function withRange(filter: Filter, name: "reward" | "steps", low: number | null, high: number | null): Filter {
  const { [`${name}_min` as const]: _low, [`${name}_max` as const]: _high, ...rest } = filter;
  return {
    ...rest,
    ...(low === null ? {} : { [`${name}_min`]: low }),
    ...(high === null ? {} : { [`${name}_max`]: high }),
  };
}

/** One part of the filter as a chip: what it says, and the filter without it. */
export interface Part {
  key: string;
  text: string;
  without: Filter;
}

export function partsOf(filter: Filter): Part[] {
  const fieldNames = [...new Set((filter.field ?? []).map((text) => text.split("=", 1)[0] ?? ""))];
  const fields = fieldNames.map((name): Dimension => ({ kind: "field", name, label: name }));
  return [...DIMENSIONS, ...fields].flatMap((dimension) => {
    const part = partOf(filter, dimension);
    return part ? [{ key: `${dimension.kind} ${dimension.name}`, ...part }] : [];
  });
}

function partOf(filter: Filter, dimension: Dimension): { text: string; without: Filter } | null {
  if (dimension.kind === "flag") {
    if (!filter[dimension.name]) return null;
    const { [dimension.name]: _, ...without } = filter;
    return { text: dimension.label, without };
  }
  if (dimension.kind === "range") {
    const text = rangeText(dimension.label, filter[`${dimension.name}_min`], filter[`${dimension.name}_max`]);
    return text ? { text, without: withRange(filter, dimension.name, null, null) } : null;
  }
  const chosen = chosenOf(filter, dimension);
  if (chosen.length === 0) return null;
  const shown =
    chosen.length > 3 ? `${chosen.slice(0, 3).join(", ")} or ${chosen.length - 3} more` : chosen.join(" or ");
  return { text: `${dimension.label}: ${shown || '""'}`, without: withChosen(filter, dimension, []) };
}

function rangeText(label: string, low: number | undefined, high: number | undefined): string | null {
  if (low !== undefined && low === high) return `${label} = ${number(low)}`;
  if (low !== undefined && high !== undefined) return `${label} ${number(low)} to ${number(high)}`;
  if (low !== undefined) return `${label} ≥ ${number(low)}`;
  return high === undefined ? null : `${label} ≤ ${number(high)}`;
}
