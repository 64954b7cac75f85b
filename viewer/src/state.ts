/** The address holds everything that a page shows, so that every state can be linked. */

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { Filter, Outcome } from "./api";
import { filterQuery, queryOf } from "./source";
import type { Order, QueryValue } from "./source";

export type Page =
  | { page: "runs" }
  | { page: "overview" | "tasks" | "rollouts" | "tools" | "training"; run: string }
  | { page: "live"; run: string }
  | { page: "rollout"; run: string; task: number; repeat: number }
  | { page: "task"; run: string; task: number }
  | { page: "compare"; runs: string[] }
  | { page: "align"; runs: string[]; task: number }
  | { page: "unknown" };

export type Route = Page & { query: URLSearchParams };

/** The parameters that go along from page to page, next to those of the filter. */
export interface View {
  filter: Filter;
  sort: string;
  order: Order;
  /** Columns of the table of rollouts; empty for the usual ones. */
  columns: string[];
}

const TEXTS = ["agent", "failure", "tier", "server", "tool", "field", "tag"] as const;
const WHOLE_NUMBERS = ["task", "repeat"] as const;
const LIMITS = ["reward_min", "reward_max", "steps_min", "steps_max"] as const;
const FLAGS = ["star", "commented", "tool_failed"] as const;
const OUTCOMES: readonly string[] = ["scored", "failed", "unresolved"] satisfies Outcome[];
const FILTER_NAMES: readonly string[] = [...TEXTS, ...WHOLE_NUMBERS, ...LIMITS, ...FLAGS, "outcome", "words"];

/** The parameters that only one of the pages with a filter has. */
const OWN = { rollouts: ["row"], overview: ["by"], tasks: ["kind", "by", "from"], tools: [] as string[], training: ["over"], compare: ["run"] };

/** A parameter of an address that filters nothing, and why. */
export interface Mistake {
  name: string;
  value: string;
  why: string;
}

/** What `filterOf` leaves out, and names that are no filter: a page that ignored them would show other rollouts. */
export function mistakesIn(query: URLSearchParams, page: keyof typeof OWN): Mistake[] {
  const known = [...FILTER_NAMES, "sort", "order", "column"];
  return [...query].flatMap(([name, value]) => {
    if (OWN[page].includes(name)) return [];
    const why = known.includes(name) ? problemOf(name, value) : `“${name}” is not a filter.${suggestion(name, known)}`;
    return why === null ? [] : [{ name, value, why }];
  });
}

function problemOf(name: string, value: string): string | null {
  const filter = filterOf(new URLSearchParams([[name, value]]));
  if (value === "" || !FILTER_NAMES.includes(name) || name in filter) return null;
  const wanted = (WHOLE_NUMBERS as readonly string[]).includes(name)
    ? "a whole number"
    : name === "outcome"
      ? `one of ${OUTCOMES.join(", ")}`
      : (FLAGS as readonly string[]).includes(name)
        ? "true"
        : "a number";
  return `${name}=${value}: this must be ${wanted}.`;
}

function suggestion(name: string, known: string[]): string {
  const [best] = known.map((each) => ({ each, off: distance(name, each) })).sort((a, b) => a.off - b.off);
  return best && best.off <= Math.max(1, best.each.length / 3) ? ` Did you mean “${best.each}”?` : "";
}

/** How many letters to change, add or remove to make one word of another. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const same = (row[j - 1] ?? 0) + Number(one[i - 1] !== other[j - 1]);
      next.push(Math.min(same, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

/** The filter of an address. Values that are not valid are left out. */
export function filterOf(query: URLSearchParams): Filter {
  const filter: Filter = {};
  for (const name of TEXTS) if (query.has(name)) filter[name] = query.getAll(name);
  for (const name of WHOLE_NUMBERS) {
    const numbers = query
      .getAll(name)
      .map(Number)
      .filter((number) => Number.isSafeInteger(number));
    if (numbers.length > 0) filter[name] = numbers;
  }
  for (const name of LIMITS) {
    const text = query.get(name);
    if (text && Number.isFinite(Number(text))) filter[name] = Number(text);
  }
  for (const name of FLAGS) if (query.get(name) === "true") filter[name] = true;
  const outcomes = query.getAll("outcome").filter((outcome): outcome is Outcome => OUTCOMES.includes(outcome));
  if (outcomes.length > 0) filter.outcome = outcomes;
  const words = query.get("words");
  if (words) filter.words = words;
  return filter;
}

/** Whether two filters, or any other values of JSON, are the same. */
export function isEqual(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

export function viewOf(query: URLSearchParams): View {
  return {
    filter: filterOf(query),
    sort: query.get("sort") ?? "task",
    order: query.get("order") === "desc" ? "desc" : "asc",
    columns: query.getAll("column"),
  };
}

/** The part of a query that goes along from page to page. */
export function sharedQuery(query: URLSearchParams): URLSearchParams {
  const shared = new URLSearchParams();
  for (const [name, value] of query) {
    if (FILTER_NAMES.includes(name) || name === "sort" || name === "order" || name === "column") {
      shared.append(name, value);
    }
  }
  return shared;
}

/** The link to a page. It keeps the current filter, order and columns, unless `shared` replaces them. */
export function href(
  page: Page,
  own: Record<string, QueryValue> = {},
  shared = sharedQuery(currentRoute().query),
): string {
  const query = queryOf({ ...ownQuery(page), ...own });
  for (const [name, value] of shared) query.append(name, value);
  const text = query.toString();
  return `#${pathOf(page)}${text && `?${text}`}`;
}

/** The link to a page with this filter instead of the current one. */
export function hrefWithFilter(page: Page, filter: Filter, own: Record<string, QueryValue> = {}): string {
  return href(page, own, queryOf(filterQuery(filter)));
}

export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (to === location.hash) return;
  if (options.replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  update();
}

/** Follow links and the browser's buttons. */
export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    listeners.add(setRoute);
    setRoute(currentRoute());
    return () => void listeners.delete(setRoute);
  }, []);
  return route;
}

/** The shared filter, and a function that sets it and leaves everything else in the address as it is. */
export function useFilter(): [Filter, (filter: Filter) => void] {
  const { query } = useRoute();
  const text = sharedQuery(query).toString();
  const filter = useMemo(() => filterOf(new URLSearchParams(text)), [text]);
  return [filter, setFilter];
}

function setFilter(filter: Filter): void {
  changeQuery((query) => {
    for (const name of [...FILTER_NAMES, "row"]) query.delete(name);
    for (const [name, value] of queryOf(filterQuery(filter))) query.append(name, value);
  });
}

/** A parameter of the page; null removes it. Changes replace the address, unless `push` adds one to the history. */
export function useParameter(name: string, push = false): [string | null, (value: string | null) => void] {
  const { query } = useRoute();
  const set = useCallback(
    (value: string | null) =>
      changeQuery((changed) => {
        if (value === null) changed.delete(name);
        else changed.set(name, value);
      }, push),
    [name, push],
  );
  return [query.get(name), set];
}

/** Change the parameters of the current address. */
export function changeQuery(change: (query: URLSearchParams) => void, push = false): void {
  const [path = "", text = ""] = splitOnce(location.hash, "?");
  const query = new URLSearchParams(text);
  change(query);
  const changed = query.toString();
  navigate(`${path || "#/runs"}${changed && `?${changed}`}`, { replace: !push });
}

const listeners = new Set<(route: Route) => void>();
let current: { hash: string; route: Route } | null = null;

/** The route of the current address; the same object as long as the address is the same. */
export function currentRoute(): Route {
  if (current?.hash !== location.hash) current = { hash: location.hash, route: routeOf(location.hash) };
  return current.route;
}

function update(): void {
  const route = currentRoute();
  for (const listener of [...listeners]) listener(route);
}

addEventListener("popstate", update);
addEventListener("hashchange", update);

function routeOf(hash: string): Route {
  const [path = "", text = ""] = splitOnce(hash.replace(/^#/, ""), "?");
  const query = new URLSearchParams(text);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { ...pageOf(parts, query), query };
}

function pageOf(parts: (string | null)[], query: URLSearchParams): Page {
  const [first = "runs", run, page = "overview", task, repeat] = parts;
  if (first === "runs" && parts.length <= 1) return { page: "runs" };
  if (first === "compare") return { page: "compare", runs: query.getAll("run") };
  if (first === "align") return alignPage(numberOf(run), query);
  if (first !== "run" || !run) return { page: "unknown" };
  if (page === "overview" || page === "tasks" || page === "rollouts") return { page, run };
  if (page === "tools" || page === "training" || page === "live") return { page, run };
  const numbers = { task: numberOf(task), repeat: numberOf(repeat) };
  if (page === "task" && numbers.task !== null) return { page, run, task: numbers.task };
  if (page === "rollout" && numbers.task !== null && numbers.repeat !== null) {
    return { page, run, task: numbers.task, repeat: numbers.repeat };
  }
  return { page: "unknown" };
}

function alignPage(task: number | null, query: URLSearchParams): Page {
  return task === null ? { page: "unknown" } : { page: "align", runs: query.getAll("run"), task };
}

function pathOf(page: Page): string {
  if ("run" in page) {
    const numbers = "repeat" in page ? `/${page.task}/${page.repeat}` : "task" in page ? `/${page.task}` : "";
    return `/run/${encodeURIComponent(page.run)}/${page.page}${numbers}`;
  }
  return page.page === "align" ? `/align/${page.task}` : `/${page.page}`;
}

function ownQuery(page: Page): Record<string, QueryValue> {
  if ("runs" in page) return { run: page.runs };
  // The way back from a rollout leads to its row.
  const from = currentRoute();
  const isBack = page.page === "rollouts" && from.page === "rollout" && from.run === page.run;
  return isBack ? { row: from.query.get("row") } : {};
}

/** A whole number in an address; null for any other text. */
export function numberOf(text: string | null | undefined): number | null {
  return text && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch (error) {
    if (error instanceof URIError) return null;
    throw error;
  }
}

function splitOnce(text: string, at: string): string[] {
  const place = text.indexOf(at);
  return place < 0 ? [text] : [text.slice(0, place), text.slice(place + 1)];
}
