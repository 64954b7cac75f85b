/** Where one is, and the ways to other pages. */

import { useState } from "preact/hooks";
import type { Run } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { href } from "../state";
import type { Page, Route } from "../state";
import { Button, ErrorNote, Menu, Spinner, StateChip, useTheme } from "../ui";
import { visible } from "../rollout/text/visible";
import { toggleTheme } from "../ui/theme";
import { PAGE_NAMES } from "./titles";

export function Header({ route, run, onHelp }: { route: Route; run: Run | null; onHelp: () => void }) {
  const theme = useTheme();
  return (
    <header class="header">
      <nav class="crumbs" aria-label="Where you are">
        <a
          href={href({ page: "runs" }, {}, new URLSearchParams())}
          aria-current={route.page === "runs" ? "page" : undefined}
        >
          Runs
        </a>
        {"run" in route && <RunCrumbs route={route} run={run} />}
        {"runs" in route && <Crumb text={PAGE_NAMES[route.page]} />}
        {route.page === "align" && <Crumb text={`Task ${route.task}`} />}
      </nav>
      {"run" in route && <Tabs route={route} run={run} />}
      <div class="header-end">
        <Button kind="quiet" label={theme === "dark" ? "Light colours (t)" : "Dark colours (t)"} onClick={toggleTheme}>
          <ThemeIcon isDark={theme === "dark"} />
        </Button>
        <Button kind="quiet" label="Keys and help (?)" onClick={onHelp}>
          ?
        </Button>
      </div>
    </header>
  );
}

type RunPage = Extract<Page, { run: string }>;

function RunCrumbs({ route, run }: { route: RunPage; run: Run | null }) {
  return (
    <>
      <Separator />
      <Menu
        kind="quiet"
        label={<RunLabel run={run} id={route.run} />}
        name={`Run ${run?.name ?? route.run}. Choose another run`}
      >
        {(close) => <RunPicker route={route} onPick={close} />}
      </Menu>
      {run && run.state !== "finished" && !("task" in route) && <StateChip run={run} />}
      {"task" in route && (
        <>
          <Separator />
          <a
            href={href({ page: "task", run: route.run, task: route.task })}
            aria-current={route.page === "task" ? "page" : undefined}
          >
            Task {route.task}
          </a>
        </>
      )}
      {route.page === "rollout" && <Crumb text={`Repeat ${route.repeat}`} />}
    </>
  );
}

function RunLabel({ run, id }: { run: Run | null; id: string }) {
  return (
    <>
      <span class="cut run-label">{visible(run?.name ?? id)}</span>
      <span class="dim" aria-hidden="true">
        ▾
      </span>
    </>
  );
}

function Separator() {
  return (
    <span class="crumb-separator" aria-hidden="true">
      /
    </span>
  );
}

function Crumb({ text }: { text: string }) {
  return (
    <>
      <Separator />
      <span aria-current="page">{text}</span>
    </>
  );
}

const TABS = ["overview", "training", "tasks", "tools", "rollouts", "live"] as const;

function Tabs({ route, run }: { route: RunPage; run: Run | null }) {
  const isRunning = run !== null && (run.is_live || run.state === "running");
  const has = { ...run?.has, live: isRunning };
  const shown = TABS.filter(
    (tab) => tab === route.page || (tab !== "live" && tab !== "tools" && tab !== "training") || has[tab],
  );
  const active = route.page === "rollout" || route.page === "task" ? "rollouts" : route.page;
  return (
    <nav class="tabs" aria-label="Pages of the run">
      {shown.map((tab) => (
        <a
          key={tab}
          class={tab === active ? "tab is-active" : "tab"}
          href={href({ page: tab, run: route.run })}
          aria-current={tab === route.page ? "page" : undefined}
        >
          {PAGE_NAMES[tab]}
        </a>
      ))}
    </nav>
  );
}

/** Another run's page of the same kind, with the same filter. */
function RunPicker({ route, onPick }: { route: RunPage; onPick: () => void }) {
  const source = useSource();
  const [text, setText] = useState("");
  const { data, error } = useLoaded("runs", (signal) => source.runs(signal));
  if (error) return <ErrorNote message={error} />;
  if (!data) return <Spinner label="Loading the runs" />;
  const found = data.runs.filter((run) => run.name.toLowerCase().includes(text.toLowerCase()));
  const page = route.page === "rollout" || route.page === "task" ? "rollouts" : route.page;
  return (
    <>
      <input
        class="field menu-search"
        aria-label="Find a run"
        placeholder="Find a run"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {found.slice(0, MOST_PICKED).map((run) => (
        <a
          key={run.id}
          class="menu-item"
          href={href({ page, run: run.id })}
          aria-current={run.id === route.run ? "true" : undefined}
          onClick={onPick}
        >
          <span class="cut">{visible(run.name)}</span>
        </a>
      ))}
      {found.length === 0 && <p class="menu-title">No run has this name.</p>}
      {found.length > MOST_PICKED && (
        <p class="menu-title">{found.length - MOST_PICKED} more: type a part of the name.</p>
      )}
    </>
  );
}

const MOST_PICKED = 50;

function ThemeIcon({ isDark }: { isDark: boolean }) {
  return (
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5" />
      <path d={isDark ? "M8 2a6 6 0 0 0 0 12z" : "M8 2a6 6 0 0 1 0 12z"} fill="currentColor" />
    </svg>
  );
}
