/** The columns of the table of rollouts. */

import type { ComponentChildren } from "preact";
import type { Facets, RolloutRow } from "../../api";
import { Chip, OutcomeMark, Reward } from "../../ui";
import { visible } from "../../rollout/text/visible";
import { bytes, compact, count, plain, seconds } from "../../ui/format";

export interface RolloutColumn {
  key: string;
  label: string;
  hint?: string;
  /** In px; null takes the rest. */
  width: number | null;
  isNumber?: boolean;
  isSortable: boolean;
  render(row: RolloutRow): ComponentChildren;
}

const BUILT_IN: RolloutColumn[] = [
  {
    key: "task",
    label: "Task",
    hint: "Task : repeat",
    width: 88,
    isSortable: true,
    render: (row) => `${row.task} : ${row.repeat}`,
  },
  { key: "outcome", label: "Outcome", width: 132, isSortable: true, render: (row) => <OutcomeCell row={row} /> },
  {
    key: "reward",
    label: "Reward",
    hint: "The reward, or why there is none",
    width: 156,
    isNumber: true,
    isSortable: true,
    render: (row) => <RewardCell row={row} highest={1} />,
  },
  {
    key: "steps",
    label: "Steps",
    hint: "Turns of the model",
    width: 64,
    isNumber: true,
    isSortable: true,
    render: (row) => count(row.steps),
  },
  {
    key: "tool_calls",
    label: "Tools",
    hint: "Tool calls",
    width: 64,
    isNumber: true,
    isSortable: true,
    render: (row) => count(row.tool_calls),
  },
  {
    key: "input_tokens",
    label: "Tokens in",
    width: 88,
    isNumber: true,
    isSortable: true,
    render: (row) => compact(row.input_tokens),
  },
  {
    key: "output_tokens",
    label: "Tokens out",
    width: 92,
    isNumber: true,
    isSortable: true,
    render: (row) => compact(row.output_tokens),
  },
  {
    key: "seconds",
    label: "Duration",
    width: 96,
    isNumber: true,
    isSortable: true,
    render: (row) => seconds(row.seconds),
  },
  { key: "agent", label: "Agent", width: 170, isSortable: true, render: (row) => visible(row.agent ?? "–") },
  {
    key: "failure",
    label: "Failure",
    hint: "The cause of the failure",
    width: 130,
    isSortable: true,
    render: (row) => visible(row.failure ?? "–"),
  },
  {
    key: "tier",
    label: "Tier",
    hint: "The tier that failed",
    width: 100,
    isSortable: false,
    render: (row) => row.tier ?? "–",
  },
  {
    key: "server",
    label: "Server",
    hint: "The server that failed",
    width: 150,
    isSortable: false,
    render: (row) => visible(row.server ?? "–"),
  },
  {
    key: "attempts",
    label: "Attempts",
    hint: "Failed attempts before this one",
    width: 84,
    isNumber: true,
    isSortable: true,
    render: (row) => count(row.attempts),
  },
  {
    key: "bytes",
    label: "Size",
    hint: "Of the line in the results",
    width: 80,
    isNumber: true,
    isSortable: true,
    render: (row) => bytes(row.bytes),
  },
  { key: "title", label: "Prompt", width: null, isSortable: false, render: (row) => <TitleCell row={row} /> },
];

/** Widths in px on a narrow screen. */
const NARROW: Record<string, number> = { task: 64, outcome: 118, reward: 118 };

const USUAL = ["task", "reward", "steps", "tool_calls", "output_tokens", "seconds", "agent", "title"];
const USUAL_WHERE_NARROW = ["task", "reward", "title"];

/** The keys of the columns that are shown unless the address names others. */
export function usualColumns(isNarrow: boolean): string[] {
  return isNarrow ? USUAL_WHERE_NARROW : USUAL;
}

/** The columns with these keys; keys that are not ours are fields of rows and results. */
export function columnsOf(keys: string[], isNarrow: boolean, highestReward: number): RolloutColumn[] {
  return keys.map((key) => {
    const column = columnOf(key);
    const width = isNarrow ? (NARROW[key] ?? column.width) : column.width;
    if (key !== "reward") return { ...column, width };
    return { ...column, width, render: (row) => <RewardCell row={row} highest={highestReward} /> };
  });
}

export function columnOf(key: string): RolloutColumn {
  return BUILT_IN.find((column) => column.key === key) ?? fieldColumn(key);
}

/** The fields among the columns: the server sends them only if they are asked for. */
export function fieldsOf(keys: string[]): string[] {
  return keys.filter((key) => !BUILT_IN.some((column) => column.key === key));
}

/** Everything that can be shown as a column. */
export function choicesOf(facets: Facets | null): { key: string; label: string; isField: boolean }[] {
  const fields = facets?.fields.filter(({ name }) => !BUILT_IN.some((column) => column.key === name)) ?? [];
  return [
    ...BUILT_IN.map(({ key, label }) => ({ key, label, isField: false })),
    ...fields.map(({ name }) => ({ key: name, label: name, isField: true })),
  ];
}

function fieldColumn(key: string): RolloutColumn {
  const width = Math.min(220, Math.max(96, key.length * 8 + 30));
  return {
    key,
    label: key,
    hint: `The field ${key}`,
    width,
    isSortable: true,
    render: (row) => visible(plain(row.fields[key])),
  };
}

/** A failed rollout shows its cause, which says more than "failed". */
function OutcomeCell({ row }: { row: RolloutRow }) {
  const text = row.outcome === "failed" ? visible(row.failure ?? "failed") : row.outcome;
  const details = [
    row.outcome,
    row.failure,
    row.tier && `tier ${row.tier}`,
    row.server,
    row.is_masked && "not trained on",
  ];
  return (
    <span class={`outcome outcome-${row.outcome}`} title={details.filter(Boolean).join(", ")}>
      {row.outcome !== "scored" && <OutcomeMark outcome={row.outcome} />}{" "}
      {row.outcome === "failed" && <span class="hidden">failed: </span>}
      {text}
      {row.is_masked && <span class="masked"> masked</span>}
    </span>
  );
}

/** The reward, or else the outcome. `highest` is the reward at which the bar is full. */
function RewardCell({ row, highest }: { row: RolloutRow; highest: number }) {
  if (row.reward === null) return <OutcomeCell row={row} />;
  const share = Math.max(0, Math.min(1, row.reward / highest));
  return (
    <span class="reward">
      {row.is_masked && <span class="masked">masked</span>}
      <span class="reward-bar" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
      <span class="reward-number">
        <Reward value={row.reward} />
      </span>
    </span>
  );
}

function TitleCell({ row }: { row: RolloutRow }) {
  return (
    <>
      {row.tags.map((tag) => (
        <Chip key={tag} tone="accent">
          {visible(tag)}
        </Chip>
      ))}
      {row.has_comment && (
        <span class="has-comment" title="Has a comment">
          <span aria-hidden="true">✎ </span>
          <span class="hidden">has a comment</span>
        </span>
      )}
      <bdi>{visible(row.title)}</bdi>
    </>
  );
}
