/** Where the pages get their data: the server's /api, or a report's embedded document. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type {
  Comparison,
  Facets,
  Filter,
  Groups,
  JsonObject,
  LiveStatus,
  Metrics,
  Note,
  Over,
  Overview,
  Problem,
  Report,
  Rollout,
  RolloutsPage,
  Run,
  TaskKind,
  TaskPage,
  TaskSort,
  TasksPage,
  Tokens,
  Tools,
  Training,
} from "./api";

export type Order = "asc" | "desc";

/** A rollout in a sorted and filtered table, which decides what comes before and after it. */
export interface RolloutOptions {
  attempt?: number;
  /** The first item to send of a rollout that is too large to be sent at once. */
  from?: number;
  filter?: Filter;
  sort?: string;
  order?: Order;
}

export interface LiveHandlers {
  onStatus(status: LiveStatus): void;
  onEnded(run: Run): void;
  /** The connection broke (true) or works again (false). The browser reconnects by itself. */
  onBroken(isBroken: boolean): void;
}

/** Methods reject with an `ApiError` if the answer is an error, and with an "AbortError" if the signal aborts. */
export interface Source {
  /** Whether runs can change while the page is open. */
  readonly isLive: boolean;
  /** Whether this is an exported report: no notes are written, no raw lines, no control. */
  readonly isReport: boolean;
  /** What a report contains of its runs; null if this is not a report. */
  readonly excerpt: Report["selection"] | null;
  runs(signal?: AbortSignal): Promise<{ runs: Run[]; problems: Problem[] }>;
  run(id: string, signal?: AbortSignal): Promise<Run>;
  facets(run: string, signal?: AbortSignal): Promise<Facets>;
  rollouts(
    run: string,
    filter: Filter,
    sort: string,
    order: Order,
    offset: number,
    limit: number,
    columns: string[],
    signal?: AbortSignal,
  ): Promise<RolloutsPage>;
  overview(run: string, filter: Filter, signal?: AbortSignal): Promise<Overview>;
  /** The key metrics, or with `whole` or words to find all of them. */
  metrics(run: string, find: string, whole: boolean, signal?: AbortSignal): Promise<Metrics>;
  groups(run: string, by: string, filter: Filter, signal?: AbortSignal): Promise<Groups>;
  /** A report has these two for all of its rollouts, regardless of the filter. */
  tools(run: string, filter: Filter, signal?: AbortSignal): Promise<Tools>;
  training(run: string, over: Over, filter: Filter, signal?: AbortSignal): Promise<Training>;
  tasks(
    run: string,
    filter: Filter,
    kind: TaskKind | null,
    sort: TaskSort,
    order: Order,
    offset: number,
    signal?: AbortSignal,
  ): Promise<TasksPage>;
  rollout(run: string, task: number, repeat: number, options?: RolloutOptions, signal?: AbortSignal): Promise<Rollout>;
  tokens(run: string, task: number, repeat: number, signal?: AbortSignal): Promise<Tokens>;
  task(run: string, task: number, signal?: AbortSignal): Promise<TaskPage>;
  compare(runs: string[], filter: Filter, signal?: AbortSignal): Promise<Comparison>;
  notes(run: string, signal?: AbortSignal): Promise<Note[]>;
  writeNote(run: string, note: Omit<Note, "at">): Promise<Note>;
  /** The raw line of a rollout. */
  raw(run: string, task: number, repeat: number, attempt: number, signal?: AbortSignal): Promise<string>;
  /** Where the filtered lines can be downloaded; null in a report. */
  selectionAddress(run: string, filter: Filter): string | null;
  /** The `source` of an image or a sound as an address that the page can load. */
  mediaAddress(source: string): string;
  control(run: string, verb: string, details?: JsonObject): Promise<JsonObject>;
  /** Follow a live run; returns a function that stops it. */
  follow(run: string, handlers: LiveHandlers): () => void;
}

/** An answer with an error: `message` is a sentence for the user. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** Whether the request was given up because something newer replaced it. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export const SourceContext = createContext<Source | null>(null);

export function useSource(): Source {
  const source = useContext(SourceContext);
  if (source === null) throw new Error("useSource() needs a <SourceContext.Provider>.");
  return source;
}

export type QueryValue = string | number | boolean | undefined | null | readonly (string | number)[];

/** Parameters of an address; lists repeat a name, and missing values, false and empty lists are left out. */
export function queryOf(values: Record<string, QueryValue>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === false || value === "") continue;
    if (typeof value === "object") for (const one of value) query.append(name, String(one));
    else query.append(name, String(value));
  }
  return query;
}

/** The parameters of a filter, under the names of the API. */
export function filterQuery(filter: Filter): Record<string, QueryValue> {
  return { ...filter };
}
