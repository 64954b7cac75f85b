/** One rollout: its conversation, and next to it how it was verified, why it failed, and what its tokens were. */

import { useRef } from "preact/hooks";
import type { Rollout } from "../api";
import { NoteEditor } from "../notes/NoteEditor";
import { useSource } from "../source";
import { useParameter } from "../state";
import { Card, Command, ErrorNote, Spinner } from "../ui";
import { useShown } from "./conversation/options";
import { Conversation } from "./conversation/Conversation";
import { Tools } from "./conversation/Tools";
import { FindBar } from "./FindBar";
import { Head } from "./Head";
import { RawJson } from "./RawJson";
import { FailureCard } from "./side/FailureCard";
import { useResizer } from "./side/Resizer";
import { Result } from "./side/Result";
import { Timeline } from "./side/Timeline";
import { Verdict } from "./side/Verdict";
import { isTab, Tabs } from "./Tabs";
import { visible } from "./text/visible";
import { TokensTab } from "./tokens/TokensTab";
import { useRollout } from "./useRollout";
import "./conversation/conversation.css";
import "./rollout.css";
import "./side/side.css";
import "./text/text.css";

interface Props {
  run: string;
  task: number;
  repeat: number;
}

export default function RolloutPage({ run, task, repeat }: Props) {
  const loaded = useRollout(run, task, repeat);
  const { rollout, error } = loaded;
  const { width, edge } = useResizer();
  if (rollout === null) {
    return error === null ? (
      <Spinner label="Loading the rollout" />
    ) : (
      <ErrorNote message={error} onRetry={loaded.reload} />
    );
  }
  return (
    <div class={loaded.isLoading ? "rollout is-stale" : "rollout"}>
      {error !== null && <ErrorNote message={error} onRetry={loaded.reload} />}
      <Head rollout={rollout} />
      {rollout.why !== null && (
        <section class="why" aria-label="Why">
          <strong aria-hidden="true">Why</strong> <span dir="auto">{visible(rollout.why)}</span>
        </section>
      )}
      <div class="rollout-columns" style={width === null ? {} : { "--side": `${width}px` }}>
        <Content rollout={rollout} omitted={loaded.omitted} onMore={loaded.loadMore} />
        {edge}
        <Side rollout={rollout} onChange={loaded.reload} />
      </div>
    </div>
  );
}

interface ContentProps {
  rollout: Rollout;
  omitted: number;
  onMore(): void;
}

function Content({ rollout, omitted, onMore }: ContentProps) {
  const [chosen, setTab] = useParameter("tab");
  const tab = isTab(chosen) ? chosen : "conversation";
  return (
    <div class="rollout-content">
      <Tabs tab={tab} rollout={rollout} onChange={(next) => setTab(next === "conversation" ? null : next)} />
      {tab === "conversation" && <ConversationTab rollout={rollout} omitted={omitted} onMore={onMore} />}
      {tab === "timeline" && <Timeline key={`${rollout.task}:${rollout.repeat}`} spans={rollout.timeline} />}
      {tab === "tokens" && <TokensTab rollout={rollout} />}
      {tab === "raw" && <RawJson rollout={rollout} />}
    </div>
  );
}

function ConversationTab({ rollout, omitted, onMore }: ContentProps) {
  const [shown, toggle] = useShown();
  const place = useRef<HTMLDivElement>(null);
  return (
    <section aria-labelledby="conversation-title">
      <h2 class="hidden" id="conversation-title">
        Conversation
      </h2>
      <FindBar root={place} shown={shown} onToggle={toggle} />
      <div ref={place}>
        {shown.metadata && <Tools tools={rollout.tools} />}
        {rollout.items.length === 0 && <p class="dim">The record has no conversation.</p>}
        <Conversation
          key={`${rollout.task}:${rollout.repeat}:${rollout.attempt}`}
          items={rollout.items}
          shown={shown}
        />
      </div>
      {omitted > 0 && (
        <button type="button" class="show-more" onClick={onMore}>
          Load more of the {omitted} items that follow
        </button>
      )}
    </section>
  );
}

function Side({ rollout, onChange }: { rollout: Rollout; onChange(): void }) {
  const { isReport } = useSource();
  return (
    <aside class="rollout-side" aria-label="Result" tabIndex={-1}>
      <Result rollout={rollout} />
      {rollout.failure && <FailureCard failure={rollout.failure} />}
      {rollout.outcome === "scored" && <Verdict rollout={rollout} />}
      {(!isReport || rollout.note) && (
        <Card title="Note">
          <NoteEditor
            run={rollout.run}
            task={rollout.task}
            repeat={rollout.repeat}
            note={rollout.note}
            onSaved={onChange}
          />
        </Card>
      )}
      {rollout.rerun && (
        <Card title="Run it again">
          <Command text={rollout.rerun} />
        </Card>
      )}
    </aside>
  );
}
