/** The views of a rollout. */

import { useRef } from "preact/hooks";
import type { Rollout } from "../api";
import { useCurrentRun } from "../data";

const TABS = { conversation: "Conversation", timeline: "Time line", tokens: "Tokens", raw: "Raw JSON" } as const;
export type Tab = keyof typeof TABS;
const NAMES = Object.keys(TABS) as Tab[];

export function isTab(name: string | null): name is Tab {
  return name !== null && name in TABS;
}

export function Tabs({ tab, rollout, onChange }: { tab: Tab; rollout: Rollout; onChange(tab: Tab): void }) {
  const list = useRef<HTMLDivElement>(null);
  const hasTokens = useCurrentRun().data?.has.tokens ?? true;
  const names = NAMES.filter((name) => name !== "tokens" || hasTokens || tab === "tokens");
  const press = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const next = (names.indexOf(tab) + by + names.length) % names.length;
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
    onChange(names[next] ?? tab);
  };
  const amounts: Partial<Record<Tab, number>> = {
    conversation: rollout.items.length + rollout.omitted,
    timeline: rollout.timeline.length,
  };
  return (
    <div class="rollout-tabs" role="tablist" aria-label="Views of the rollout" ref={list} onKeyDown={press}>
      {names.map((name) => (
        <button
          key={name}
          type="button"
          role="tab"
          aria-selected={name === tab}
          tabIndex={name === tab ? 0 : -1}
          onClick={() => onChange(name)}
        >
          {TABS[name]}
          {amounts[name] !== undefined && <span class="item-size">{amounts[name]}</span>}
        </button>
      ))}
    </div>
  );
}
