/** The rollouts that have been running for longest, each with a button that cancels it. */
import { useRef, useState } from "preact/hooks";
import type { LiveStatus } from "../api";
import { href } from "../state";
import { Button } from "../ui/Button";
import { count, seconds } from "../ui/format";
import { Table } from "../ui/Table";
import type { Column } from "../ui/Table";
import type { Verb } from "./verbs";

type Running = LiveStatus["longest"][number];

interface Props {
  run: string;
  longest: Running[];
  /** Null if nothing can be cancelled at the moment. */
  cancel: ((verb: Verb) => void) | null;
}

export function Longest({ run, longest, cancel }: Props) {
  const [isHeld, setIsHeld] = useState(false);
  const held = useRef(longest);
  // Rows must not move under the pointer, or the click would cancel another rollout.
  if (!isHeld) held.current = longest;
  const now = new Map(longest.map((row) => [keyOf(row), row]));
  const columns: Column<Running>[] = [
    {
      key: "rollout",
      label: "Rollout",
      render: ({ task, repeat }) => <a href={href({ page: "task", run, task })}>task {task}, repeat {repeat}</a>,
    },
    { key: "attempt", label: "Attempt", isNumber: true, render: (row) => count(row.attempt + 1) },
    {
      key: "seconds",
      label: "Running for",
      isNumber: true,
      render: (row) => {
        const running = now.get(keyOf(row));
        return running ? seconds(running.seconds) : "ended";
      },
    },
    {
      key: "cancel",
      label: "Action",
      render: ({ task, repeat }) => (
        <Button
          kind="quiet"
          label={`Cancel task ${task}, repeat ${repeat}`}
          disabled={!cancel || !now.has(keyOf({ task, repeat }))}
          onClick={() => cancel?.({ verb: "cancel", details: { task, repeat } })}
        >
          Cancel
        </Button>
      ),
    },
  ];
  return (
    <div
      onPointerEnter={() => setIsHeld(true)}
      onPointerLeave={() => setIsHeld(false)}
      onFocusIn={() => setIsHeld(true)}
      onFocusOut={() => setIsHeld(false)}
    >
      <Table caption="The rollouts that have been running for longest" columns={columns} rows={held.current} keyOf={keyOf} />
    </div>
  );
}

function keyOf({ task, repeat }: Pick<Running, "task" | "repeat">): string {
  return `${task}:${repeat}`;
}
