/**
 * The JSON of the server's /api. Times are ISO 8601 in UTC; durations are in seconds, unless a name ends in `_ms`.
 *
 * A rollout is identified by `run`, `task` and `repeat`. Files without `_ng_task_index` use the line, from 0, as the task.
 */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** Something about the files that a reader must know: a torn line, a line of another program, an unreadable file. */
export interface Problem {
  file: string;
  line: number | null;
  message: string;
}

export type RunState = "running" | "finished" | "interrupted" | "stopped" | "killed" | "unknown";

/** GET /api/runs: {runs: Run[], problems: Problem[]}. GET /api/runs/{id}: Run. */
export interface Run {
  id: string;
  /** The path of the results relative to the path that was given to `ng view`, without `.jsonl`. Unique. */
  name: string;
  path: string;
  state: RunState;
  /** What a user asked a running collection for. */
  phase: "paused" | "draining" | null;
  /** The error that stopped it, or the limit at which it ended. */
  reason: string | null;
  started_at: string | null;
  ended_at: string | null;
  seconds: number | null;
  planned: number | null;
  scored: number;
  failed: number;
  unresolved: number | null;
  mean_reward: number | null;
  /**
   * pass@k, between 0 and 1, for powers of two and the largest k that all tasks with a reward have rollouts for; null
   * unless all rewards are 0 or 1.
   */
  pass_at: Record<string, number> | null;
  model: string | null;
  agents: string[];
  /** The settings of the collection, flattened: "num_repeats", "models.policy_model.temperature". */
  settings: Record<string, Json>;
  command: string[] | null;
  /** Bytes that the index has read, of how many. Equal if it is complete; the torn last line of a run that has ended counts. */
  indexed: { bytes: number; of: number };
  problems: Problem[];
  /** Whether the collection answers on its control socket. */
  is_live: boolean;
  /** The policy version of each rollout is known, tokens were recorded, and so on: what the pages can offer. */
  has: { tokens: boolean; timeline: boolean; components: boolean; training: boolean; tools: boolean };
}

/**
 * The shared filter. The same names are query parameters of the API and of the page's address; lists repeat a parameter.
 * `field` is `name=value`, with a dotted name for nested fields. Values of one list are alternatives; different
 * parameters, and different names of `field`, must all hold.
 */
export interface Filter {
  agent?: string[];
  task?: number[];
  repeat?: number[];
  outcome?: Outcome[];
  failure?: string[];
  tier?: string[];
  server?: string[];
  tool?: string[];
  /** A call of one of the tools failed, or of any tool if `tool` is empty. */
  tool_failed?: boolean;
  reward_min?: number;
  reward_max?: number;
  steps_min?: number;
  steps_max?: number;
  /** Text that the conversation contains, regardless of case. */
  words?: string;
  field?: string[];
  star?: boolean;
  tag?: string[];
  /** Only rollouts with a comment. */
  commented?: boolean;
}

export type Outcome = "scored" | "failed" | "unresolved";

/** GET /api/facets?run=: what the filter offers. Lists are sorted by count, at most 100 values each. */
export interface Facets {
  agents: Count[];
  outcomes: Count[];
  failures: Count[];
  tiers: Count[];
  servers: Count[];
  tools: Count[];
  tags: Count[];
  /** Scalar fields of rows and results, such as grading_mode or metadata.subset. One with more than 1,000 values lists none. */
  fields: { name: string; kind: "text" | "number" | "bool"; values: Count[] }[];
  reward: { min: number; max: number } | null;
  steps: { min: number; max: number } | null;
}
export interface Count {
  value: string;
  count: number;
}

/** GET /api/rollouts?run=&<filter>&sort=reward&order=asc|desc&offset=0&limit=100&column=<field>&column=… */
export interface RolloutsPage {
  total: number;
  offset: number;
  rows: RolloutRow[];
}
export interface RolloutRow {
  task: number;
  repeat: number;
  agent: string | null;
  outcome: Outcome;
  reward: number | null;
  failure: string | null;
  tier: string | null;
  server: string | null;
  /** Failed attempts before. */
  attempts: number;
  /** Model turns: assistant messages or groups of tool calls. */
  steps: number | null;
  tool_calls: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  /** Seconds of the rollout, if the run recorded them. */
  seconds: number | null;
  is_masked: boolean;
  bytes: number;
  /** The first 120 characters of the last user message of the prompt. */
  title: string;
  star: boolean;
  tags: string[];
  has_comment: boolean;
  /** The values of the requested columns. */
  fields: Record<string, Json>;
}
/** The names that `sort` accepts besides those of fields. */
export type SortKey =
  | "task" | "agent" | "outcome" | "reward" | "failure" | "attempts" | "steps" | "tool_calls"
  | "input_tokens" | "output_tokens" | "seconds" | "bytes";

/** GET /api/overview?run=&<filter> */
export interface Overview {
  counts: { planned: number | null; scored: number; failed: number; unresolved: number | null };
  /** One histogram per agent, with equal bins from `low` to `high`: 0 and 1 if all of its rewards are between them. */
  rewards: { agent: string | null; low: number; high: number; counts: number[]; mean: number; ci: [number, number] | null }[];
  /** At most 200 × 64 cells, or 1,000 × 1 if there are more tasks. Neighbours share a cell if there are too many. */
  heatmap: {
    /** The first task of each row and how many tasks it covers. */
    tasks: { first: number; count: number }[];
    /** The number of columns, and how many repeats each of them has. */
    repeats: number;
    per_column: number;
    of_repeats: number;
    /** Per row and column: the mean reward; null if unresolved; "failed". */
    cells: (number | null | "failed")[][];
  };
  failures: { cause: string; tier: string | null; server: string | null; count: number; example: { task: number; repeat: number; message: string } }[];
  /** The progress over time, at most 300 points; empty if no times are known. */
  progress: { at_s: number[]; finished: number[]; in_flight: (number | null)[] };
  /** Distributions: equal bins from `low` to `high`, with quantiles. The last bin also has all larger values, up to `max`. */
  distributions: {
    name: "steps" | "input_tokens" | "output_tokens" | "seconds" | "model_seconds" | "tool_seconds" | "verify_seconds";
    low: number;
    high: number;
    counts: number[];
    mean: number;
    p50: number;
    p95: number;
    max: number;
  }[];
  /** How many rollouts the distributions are from; null if they are from all. */
  sampled: number | null;
  components: { agent: string | null; name: string; mean: number; min: number; max: number; count: number }[];
}

/**
 * GET /api/metrics?run=&find=&whole=: the key metrics of x_aggregate_metrics.json, or with `whole` or words to find all
 * of them. At most 300 are sent, the key ones first.
 */
export interface Metrics {
  of: number;
  /** How many contain the words. */
  total: number;
  has_keys: boolean;
  rows: { agent: string | null; name: string; value: Json; meaning: string | null; is_key: boolean }[];
}

/** The numbers of a group of rollouts. Tokens and seconds are means over the rollouts. */
export interface Numbers {
  rollouts: number;
  scored: number;
  /** Rewards of 1 or more. */
  solved: number;
  mean: number | null;
  low: number | null;
  high: number | null;
  /** The standard deviation of the rewards; null for fewer than two. */
  std: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  seconds: number | null;
  failed: number;
}

/**
 * GET /api/groups?run=&by=&<filter>: the rollouts with the same value of a column or a field. The 1,000 largest groups
 * of `total`, ordered by the value.
 */
export interface Groups {
  total: number;
  rows: ({ value: string } & Numbers)[];
}

/** GET /api/tools?run=&<filter>: the called tools, those with most failures first. */
export interface Tools {
  rows: {
    name: string;
    calls: number;
    failed: number;
    /** Rollouts with a call, and with a failed one. */
    rollouts: number;
    failing: number;
    /** The 95th percentile of the recorded durations, and how many there are. */
    p95_s: number | null;
    timed: number;
    /** The first rollout with a failed call, or else with any. */
    example: { task: number; repeat: number };
  }[];
}

/** GET /api/training?run=&over=version|step&<filter>. All lists of a curve are as long as `points`. */
export interface Training {
  has_steps: boolean;
  /** The versions or steps; the first one of each range if there are more than 300. */
  points: number[];
  curves: ({ agent: string | null } & Record<Measure, (number | null)[]>)[];
  /** Tasks that teach at their latest place, that no longer do, that never did, and that were sampled at one place. */
  counts: { teaching: number; stopped: number; flat: number; once: number };
  /** The map: the first version or step of each column, and tasks in the order in which they stopped teaching. */
  columns: number[];
  rows: {
    count: number;
    /** The task indexes of its groups, at most 50. */
    tasks: number[];
    taught_until: number | null;
    title: string;
    /** The numbers of groups: never solved, with different rewards, always solved. */
    cells: ([number, number, number] | null)[];
  }[];
  /** Numbers that the trainer noted, such as its loss. */
  noted: { name: string; at: number[]; values: number[] }[];
}
export type Over = "version" | "step";
/** `mixed` is the share of groups whose rewards differ; `staleness` is in versions, at the end of the rollout. */
export type Measure = "reward" | "mixed" | "failed" | "output_tokens" | "staleness" | "log_prob";

/**
 * GET /api/rollout?run=&task=&repeat= (&attempt= for an earlier failed attempt, &from= for the items from a number on).
 * The filter, &sort= and &order= decide what comes before and after it. Its tasks and repeats are &filter.task= and
 * &filter.repeat= here, because `task` and `repeat` are those of the rollout.
 */
export interface Rollout {
  run: string;
  task: number;
  repeat: number;
  attempt: number;
  /** Numbers of the attempts whose records exist, the shown one included. */
  attempts: number[];
  agent: string | null;
  outcome: Outcome;
  reward: number | null;
  /** One sentence: the grader's reason or the failure, the tools that failed, and how the rollout ended. */
  why: string | null;
  is_masked: boolean;
  mask_reason: string | null;
  policy_version: Json;
  model: string | null;
  usage: { input_tokens: number | null; output_tokens: number | null; cached_tokens: number | null; reasoning_tokens: number | null } | null;
  /** The prompt and then the response, in order. */
  items: Item[];
  /** Items that are not sent because the rollout is large; ask for them with &from=. */
  omitted: number;
  tools: { name: string; description: string | null; parameters: Json }[];
  failure: Failure | null;
  reward_components: Record<string, number>;
  /** Fields that grading added, and those of the task's row. Values above 64 KiB are replaced by a note. */
  graded: JsonObject;
  given: JsonObject;
  judges: Judgement[];
  timeline: Span[];
  note: Note | null;
  /** Commands to run this task again. */
  rerun: string | null;
  file: { path: string; line: number; offset: number; bytes: number } | null;
  /** The rollouts before and after it in the filtered and sorted table. */
  previous: { task: number; repeat: number } | null;
  next: { task: number; repeat: number } | null;
}

/** `turn` counts the calls of the model, from 1; it is null in the prompt, and if the turn is not known. */
export type Item =
  | { kind: "message"; role: "system" | "developer" | "user" | "assistant"; parts: Part[]; in_prompt: boolean; turn: number | null }
  | { kind: "reasoning"; text: string; is_summary: boolean; turn: number | null }
  /** A tool call with its result; `result` is null if there is none. `arguments` is parsed if it is JSON. */
  | { kind: "tool"; name: string; call_id: string; arguments: Json; result: Part[] | null; failed: boolean; turn: number | null; seconds: number | null }
  /** An item of an unknown kind, as it is. */
  | { kind: "other"; type: string; value: Json; turn: number | null };

export type Part =
  | { kind: "text"; text: string; omitted: number }
  /** `source` is a path under /api/media, or a data: address in an exported report; null if it cannot be shown. */
  | { kind: "image"; source: string | null; note: string | null }
  | { kind: "audio"; source: string | null; note: string | null }
  | { kind: "refusal"; text: string };

export interface Failure {
  class: string;
  message: string;
  server: string | null;
  tier: string | null;
  retryable: boolean;
  /**
   * The place in the server's log; null if there is no log. `first_line` is the number of the first of the lines, null if
   * it is too far into a large log; `marked` are indexes into `lines`.
   */
  log: { server: string; path: string; first_line: number | null; lines: string[]; marked: number[] } | null;
}

export interface Judgement {
  name: string;
  prompt: string | null;
  answer: string | null;
  verdict: string | null;
  reward: number | null;
}

/** One call: what was called, when it began after the rollout's start, and for how long it ran. */
export interface Span {
  tier: "agent" | "model" | "environment" | "judge";
  name: string;
  start_ms: number;
  duration_ms: number;
  turn: number | null;
  status: string | null;
  detail: string | null;
}

/**
 * GET /api/tokens?run=&task=&repeat=: the training sequences. There is no `attempt`, because only scored rollouts have
 * sequences.
 */
export interface Tokens {
  sequences: {
    ids: number[];
    /** 1 for tokens that are trained. */
    mask: (0 | 1)[];
    logprobs: (number | null)[];
    prompt_length: number;
    /** Where each turn's sampled tokens begin and end, and what the turn wrote; empty if it is not known. */
    turns: { start: number; end: number; text: string }[];
    /** The text of each token; null without a tokenizer. */
    texts: string[] | null;
  }[];
  is_masked: boolean;
  mask_reason: string | null;
  /** Why there are no sequences or several ones, or that tokens are left out because there are too many. */
  problem: string | null;
}

/**
 * GET /api/task?run=&task=: all repeats of a task, at most 16 with their items. `repeats` leaves out those that cannot be
 * shown; /api/rollout returns the reason.
 */
export interface TaskPage {
  run: string;
  task: number;
  title: string;
  repeats: Rollout[];
  /** All repeats with their outcome. */
  all: { repeat: number; outcome: Outcome; reward: number | null }[];
}

/** GET /api/compare?run=a&run=b&<filter>: run[0] is the baseline. */
export interface Comparison {
  runs: string[];
  /** Tasks that all runs have, and those that only some have, by run. */
  shared: number;
  only: Record<string, number>;
  /** Per run: mean over the shared tasks. */
  means: { run: string; mean: number; ci: [number, number] | null }[];
  /** Every other run minus the baseline, over the shared tasks. `changed` counts the tasks: won + lost. */
  differences: { run: string; mean: number; ci: [number, number] | null; p: number | null; won: number; lost: number; changed: number; same: number }[];
  /**
   * The tasks whose mean reward differs most, at most 500. A task is "changed" if one run is better than the baseline and
   * another is worse.
   */
  tasks: { task: number; title: string; rewards: (number | null)[]; change: "won" | "lost" | "changed" | "same" }[];
  settings: { name: string; values: Json[] }[];
  /** Why a number is missing, for example fewer than two shared tasks. */
  notes: string[];
}

/**
 * GET /api/tasks?run=&<filter>&kind=&sort=&order=&offset=: at most 100 tasks. All rewards of a "never" or "always" task
 * are equal: below 1, or not. Those of a "mixed" one differ, so that training learns from it.
 */
export interface TasksPage {
  counts: Record<"all" | TaskKind, number>;
  offset: number;
  rows: TaskRow[];
}
export type TaskKind = "never" | "mixed" | "always";
export interface TaskRow extends Numbers {
  task: number;
  title: string;
}
export type TaskSort = "task" | "scored" | "solved" | "mean" | "std" | "output_tokens" | "seconds" | "failed";

/** GET /api/notes?run=, POST /api/notes {run, task, repeat, star, tags, comment}: returns the Note. */
export interface Note {
  task: number;
  repeat: number;
  star: boolean;
  tags: string[];
  comment: string;
  at: string;
}

/**
 * GET /api/events?run=: server-sent events, at most one per second.
 * `event: status` has a LiveStatus, `event: ended` the final Run.
 */
export interface LiveStatus {
  state: "starting" | "collecting" | "paused" | "draining" | "ending";
  planned: number;
  scored: number;
  failed: Record<string, number>;
  unresolved: number;
  mean_reward: number | null;
  /** Null if the collection does not answer, so that only its files are known. */
  running: number | null;
  requeued: number;
  concurrency: number | null;
  is_adaptive: boolean;
  rollouts_per_s: number;
  /** Null if unknown, as at the start and during a pause. */
  left_s: number | null;
  /** The rollouts that have been running for longest. */
  longest: { task: number; repeat: number; attempt: number; seconds: number }[];
  servers: ServerLoad[];
}
export interface ServerLoad {
  name: string;
  tier: "model" | "agent" | "environment";
  address: string;
  state: "up" | "starting" | "down";
  /** Why it is not up, or how many of its workers do not answer. */
  problem: string | null;
  /** Numbers are null if the server has not reported them. */
  in_flight: number | null;
  queued: number | null;
  loop_lag_ms: number | null;
  cpu_percent: number | null;
  memory_mb: number | null;
  /** Since its start: requests answered, those answered with a status of 500 or more, and those its full queue rejected. */
  requests: number | null;
  errors: number | null;
  refused: number | null;
  /** Since the previous reading; null in the first one, like cpu_percent. */
  requests_per_s: number | null;
  errors_per_s: number | null;
  /** Of a model server with several engines: calls that went to their rollout's earlier engine, or to another one. */
  kept: number | null;
  moved: number | null;
}

/**
 * POST /api/control {run, verb, …}: {changed?, …} or 409 {detail}. Verbs: pause, resume, drain, stop,
 * concurrency {wanted: number | null} (null is auto), cancel {task, repeat?}, requeue {task?, repeat?}.
 * GET /api/selection?run=&<filter>: the raw lines as a JSONL download.
 * GET /api/raw?run=&task=&repeat=: the raw line as JSON text. GET /api/media?run=&task=&repeat=&n=: bytes of one medium.
 * Errors: {detail: string} with 400 (a bad parameter), 403 (no session), 404, 409.
 */

/** In an exported report: everything that the pages need, as one gzip-compressed JSON document. */
export interface Report {
  runs: Run[];
  /** The query of its filter, how many rollouts that selects, and how many of them are included. */
  selection: { text: string; total: number; included: number };
  /** By run id. */
  facets: Record<string, Facets>;
  overviews: Record<string, Overview>;
  metrics: Record<string, Metrics>;
  tools: Record<string, Tools>;
  training: Record<string, Record<Over, Training>>;
  rows: Record<string, RolloutRow[]>;
  rollouts: Record<string, Rollout[]>;
  tokens: Record<string, Record<string, Tokens>>;
  comparison: Comparison | null;
}
