/** The server's /api as a Source. */

import type {
  Facets,
  Filter,
  Groups,
  JsonObject,
  LiveStatus,
  Metrics,
  Note,
  Overview,
  Problem,
  Rollout,
  RolloutsPage,
  Run,
} from "./api";
import type { Comparison, Over, TaskKind, TaskPage, TaskSort, TasksPage, Tokens, Tools, Training } from "./api";
import { ApiError, filterQuery, queryOf } from "./source";
import type { LiveHandlers, Order, QueryValue, RolloutOptions, Source } from "./source";

/** Browsers open six connections to a host; the events of a live run keep one of them. */
const MOST_REQUESTS = 4;

export class HttpSource implements Source {
  readonly isLive = true;
  readonly isReport = false;
  readonly excerpt = null;
  private inFlight = 0;
  private readonly waiting: (() => void)[] = [];

  runs(signal?: AbortSignal): Promise<{ runs: Run[]; problems: Problem[] }> {
    return this.get("runs", {}, signal);
  }

  run(id: string, signal?: AbortSignal): Promise<Run> {
    return this.get(`runs/${encodeURIComponent(id)}`, {}, signal);
  }

  facets(run: string, signal?: AbortSignal): Promise<Facets> {
    return this.get("facets", { run }, signal);
  }

  rollouts(
    run: string,
    filter: Filter,
    sort: string,
    order: Order,
    offset: number,
    limit: number,
    columns: string[],
    signal?: AbortSignal,
  ): Promise<RolloutsPage> {
    const parameters = { run, ...filterQuery(filter), sort, order, offset, limit, column: columns };
    return this.get("rollouts", parameters, signal);
  }

  overview(run: string, filter: Filter, signal?: AbortSignal): Promise<Overview> {
    return this.get("overview", { run, ...filterQuery(filter) }, signal);
  }

  metrics(run: string, find: string, whole: boolean, signal?: AbortSignal): Promise<Metrics> {
    return this.get("metrics", { run, find, whole }, signal);
  }

  groups(run: string, by: string, filter: Filter, signal?: AbortSignal): Promise<Groups> {
    return this.get("groups", { run, by, ...filterQuery(filter) }, signal);
  }

  tools(run: string, filter: Filter, signal?: AbortSignal): Promise<Tools> {
    return this.get("tools", { run, ...filterQuery(filter) }, signal);
  }

  training(run: string, over: Over, filter: Filter, signal?: AbortSignal): Promise<Training> {
    return this.get("training", { run, over, ...filterQuery(filter) }, signal);
  }

  tasks(
    run: string,
    filter: Filter,
    kind: TaskKind | null,
    sort: TaskSort,
    order: Order,
    offset: number,
    signal?: AbortSignal,
  ): Promise<TasksPage> {
    return this.get("tasks", { run, ...filterQuery(filter), kind, sort, order, offset }, signal);
  }

  rollout(
    run: string,
    task: number,
    repeat: number,
    options: RolloutOptions = {},
    signal?: AbortSignal,
  ): Promise<Rollout> {
    const { filter = {}, ...view } = options;
    const numbers = { "filter.task": filter.task, "filter.repeat": filter.repeat };
    // The numbers of the rollout replace the filter's lists of the same names.
    const parameters = { ...filterQuery(filter), ...numbers, ...view, run, task, repeat };
    return this.get("rollout", parameters, signal);
  }

  tokens(run: string, task: number, repeat: number, signal?: AbortSignal): Promise<Tokens> {
    return this.get("tokens", { run, task, repeat }, signal);
  }

  task(run: string, task: number, signal?: AbortSignal): Promise<TaskPage> {
    return this.get("task", { run, task }, signal);
  }

  compare(runs: string[], filter: Filter, signal?: AbortSignal): Promise<Comparison> {
    return this.get("compare", { run: runs, ...filterQuery(filter) }, signal);
  }

  notes(run: string, signal?: AbortSignal): Promise<Note[]> {
    return this.get("notes", { run }, signal);
  }

  writeNote(run: string, note: Omit<Note, "at">): Promise<Note> {
    return this.post("notes", { run, ...note });
  }

  async raw(run: string, task: number, repeat: number, attempt: number, signal?: AbortSignal): Promise<string> {
    const reply = await this.fetch(addressOf("raw", { run, task, repeat, attempt }), signal ? { signal } : {});
    return reply.text();
  }

  selectionAddress(run: string, filter: Filter): string {
    return addressOf("selection", { run, ...filterQuery(filter) });
  }

  mediaAddress(source: string): string {
    return source;
  }

  control(run: string, verb: string, details: JsonObject = {}): Promise<JsonObject> {
    return this.post("control", { run, verb, ...details });
  }

  follow(run: string, handlers: LiveHandlers): () => void {
    const events = new EventSource(addressOf("events", { run }));
    events.addEventListener("open", () => handlers.onBroken(false));
    events.addEventListener("error", () => handlers.onBroken(true));
    events.addEventListener("status", (event) => handlers.onStatus(JSON.parse(event.data) as LiveStatus));
    events.addEventListener("ended", (event) => {
      events.close();
      handlers.onEnded(JSON.parse(event.data) as Run);
    });
    return () => events.close();
  }

  private async get<T>(path: string, parameters: Record<string, QueryValue>, signal?: AbortSignal): Promise<T> {
    const reply = await this.fetch(addressOf(path, parameters), signal ? { signal } : {});
    return (await reply.json()) as T;
  }

  private async post<T>(path: string, body: object): Promise<T> {
    const headers = { "Content-Type": "application/json" };
    // A comment is also saved when its page is being closed.
    const options = { method: "POST", headers, body: JSON.stringify(body), keepalive: true };
    const reply = await this.fetch(`api/${path}`, options);
    return (await reply.json()) as T;
  }

  private async fetch(address: string, options: RequestInit): Promise<Response> {
    await this.enter(options.signal ?? null);
    try {
      return await answerOf(address, options);
    } finally {
      this.inFlight -= 1;
      this.waiting.shift()?.();
    }
  }

  /** Wait for a free slot; requests that were given up meanwhile are never sent. */
  private async enter(signal: AbortSignal | null): Promise<void> {
    while (this.inFlight >= MOST_REQUESTS) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
    if (signal?.aborted) {
      this.waiting.shift()?.();
      throw new DOMException("The request was replaced.", "AbortError");
    }
    this.inFlight += 1;
  }
}

function addressOf(path: string, parameters: Record<string, QueryValue>): string {
  return `api/${path}?${queryOf(parameters)}`;
}

async function answerOf(address: string, options: RequestInit): Promise<Response> {
  let reply: Response;
  try {
    reply = await fetch(address, options);
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError("The viewer does not answer. Is `ng view` still running?", 0);
    throw error;
  }
  if (!reply.ok) throw new ApiError(await messageOf(reply), reply.status);
  return reply;
}

async function messageOf(reply: Response): Promise<string> {
  const text = await reply.text();
  try {
    const { detail } = JSON.parse(text) as { detail?: unknown };
    if (typeof detail === "string") return detail;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return `The viewer answered with status ${reply.status}.`;
}
