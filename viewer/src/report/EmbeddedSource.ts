/** The document inside an exported report as a Source. It answers as the server does, without a network. */
import type {
  Comparison, Facets, Filter, Groups, JsonObject, Metrics, Note, Over, Overview, Problem, Report, Rollout, RolloutRow,
  RolloutsPage, Run, TaskKind, TaskPage, TaskSort, TasksPage, Tokens, Tools, Training,
} from "../api";
import { compareRows, fieldOf, isEmpty, matches } from "../filter";
import type { Known } from "../filter";
import { ApiError } from "../source";
import type { LiveHandlers, Order, RolloutOptions, Source } from "../source";
import { overviewOf } from "./overview";
import { groupsOf, metricsOf, tasksOf } from "./groups";

const MOST_REPEATS = 16;

export class EmbeddedSource implements Source {
  readonly isLive = false;
  readonly isReport = true;
  readonly excerpt: Report["selection"];
  private readonly known = new Map<string, Known[]>();

  constructor(private readonly report: Report) {
    this.excerpt = report.selection;
  }

  async runs(): Promise<{ runs: Run[]; problems: Problem[] }> {
    return { runs: this.report.runs, problems: [] };
  }

  async run(id: string): Promise<Run> {
    return found(this.report.runs.find((run) => run.id === id), `Run '${id}'`);
  }

  async facets(run: string): Promise<Facets> {
    return found(this.report.facets[run], `Run '${run}'`);
  }

  async rollouts(
    run: string, filter: Filter, sort: string, order: Order, offset: number, limit: number, columns: string[],
  ): Promise<RolloutsPage> {
    const chosen = this.chosen(run, filter, sort, order);
    const rows = chosen.slice(offset, offset + limit).map((known) => withColumns(known, columns));
    return { total: chosen.length, offset, rows };
  }

  async overview(run: string, filter: Filter): Promise<Overview> {
    const whole = found(this.report.overviews[run], `Run '${run}'`);
    return isEmpty(filter) ? whole : overviewOf(this.chosen(run, filter, "task", "asc"), whole);
  }

  async metrics(run: string, find: string, whole: boolean): Promise<Metrics> {
    return metricsOf(found(this.report.metrics[run], `Run '${run}'`), find, whole);
  }

  async groups(run: string, by: string, filter: Filter): Promise<Groups> {
    return groupsOf(this.chosen(run, filter, "task", "asc"), by);
  }

  async tools(run: string): Promise<Tools> {
    return found(this.report.tools[run], `Run '${run}'`);
  }

  async training(run: string, over: Over): Promise<Training> {
    return found(this.report.training[run], `Run '${run}'`)[over];
  }

  async tasks(
    run: string, filter: Filter, kind: TaskKind | null, sort: TaskSort, order: Order, offset: number,
  ): Promise<TasksPage> {
    return tasksOf(this.chosen(run, filter, "task", "asc").map(({ row }) => row), kind, sort, order, offset);
  }

  async rollout(run: string, task: number, repeat: number, options: RolloutOptions = {}): Promise<Rollout> {
    const known = this.all(run).find(({ row }) => row.task === task && row.repeat === repeat);
    const rollout = found(known?.rollout, `Task ${task}, repeat ${repeat}`);
    const chosen = this.chosen(run, options.filter ?? {}, options.sort ?? "task", options.order ?? "asc");
    const at = chosen.findIndex((each) => each === known);
    const keyAt = (place: number) => keyOf(at < 0 ? undefined : chosen[place]);
    return { ...rollout, previous: at > 0 ? keyAt(at - 1) : null, next: keyAt(at + 1) };
  }

  async tokens(run: string, task: number, repeat: number): Promise<Tokens> {
    const tokens = this.report.tokens[run]?.[`${task}:${repeat}`];
    const problem = "This report does not contain the tokens of this rollout.";
    return tokens ?? { sequences: [], is_masked: false, mask_reason: null, problem };
  }

  async task(run: string, task: number): Promise<TaskPage> {
    const repeats = this.all(run).filter(({ row }) => row.task === task).sort((a, b) => a.row.repeat - b.row.repeat);
    return {
      run,
      task,
      title: found(repeats[0], `Task ${task}`).row.title,
      repeats: repeats.flatMap(({ rollout }) => rollout ?? []).slice(0, MOST_REPEATS),
      all: repeats.map(({ row }) => ({ repeat: row.repeat, outcome: row.outcome, reward: row.reward })),
    };
  }

  async compare(runs: string[]): Promise<Comparison> {
    const comparison = this.report.comparison;
    // The first run of the report stays the baseline, because other differences are not in it.
    if (!comparison || [...comparison.runs].sort().join() !== [...runs].sort().join()) {
      const names = comparison?.runs.map((id) => this.report.runs.find((run) => run.id === id)?.name ?? id).join(", ");
      throw new ApiError(names ? `This report compares ${names}, all of them together.` : "This report has no comparison.", 404);
    }
    return comparison;
  }

  async notes(run: string): Promise<Note[]> {
    return this.all(run).flatMap(({ rollout }) => rollout?.note ?? []);
  }

  async writeNote(): Promise<Note> {
    throw readOnly("Notes");
  }

  async raw(): Promise<string> {
    throw readOnly("Raw lines");
  }

  selectionAddress(): null {
    return null;
  }

  /** Reports contain their images as `data:` addresses. */
  mediaAddress(source: string): string {
    return source;
  }

  async control(): Promise<JsonObject> {
    throw readOnly("Controls");
  }

  follow(_run: string, _handlers: LiveHandlers): () => void {
    throw readOnly("Live pages");
  }

  private chosen(run: string, filter: Filter, sort: string, order: Order): Known[] {
    return this.all(run)
      .filter((known) => matches(known, filter))
      .sort((a, b) => compareRows(a, b, sort, order));
  }

  private all(run: string): Known[] {
    const before = this.known.get(run);
    if (before) return before;
    const rollouts = new Map(this.report.rollouts[run]?.map((rollout) => [`${rollout.task}:${rollout.repeat}`, rollout]));
    const rows = found(this.report.rows[run], `Run '${run}'`);
    const known = rows.map((row) => ({ row, rollout: rollouts.get(`${row.task}:${row.repeat}`) }));
    this.known.set(run, known);
    return known;
  }
}

function withColumns(known: Known, columns: string[]): RolloutRow {
  const fields = Object.fromEntries(columns.map((name) => [name, fieldOf(known, name) ?? null]));
  return { ...known.row, fields };
}

function keyOf(known: Known | undefined): { task: number; repeat: number } | null {
  return known ? { task: known.row.task, repeat: known.row.repeat } : null;
}

function found<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new ApiError(`${name} is not in this report.`, 404);
  return value;
}

function readOnly(what: string): ApiError {
  return new ApiError(`${what} are not available in a report. Open the run with 'ng view'.`, 409);
}
