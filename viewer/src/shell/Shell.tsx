/** The frame of all pages: header, shared filter, the page, help. */

import { useEffect, useRef, useState } from "preact/hooks";
import { RunContext, useRun } from "../data";
import { FilterBar } from "../filterbar/FilterBar";
import { useSource } from "../source";
import { changeQuery, mistakesIn, useRoute } from "../state";
import type { Mistake, Page } from "../state";
import { ErrorNote, useShortcuts } from "../ui";
import { toggleTheme } from "../ui/theme";
import { useTitle } from "../ui/title";
import { Header } from "./Header";
import { Help } from "./Help";
import { CurrentPage } from "./pages";
import { ReportNote } from "./ReportNote";
import { titleOf } from "./titles";

export function Shell() {
  const route = useRoute();
  const runId = "run" in route ? route.run : null;
  const run = useRun(runId);
  const [isHelpOpen, setIsHelpOpen] = useState(false);
  useTitle(titleOf(route, run.data?.name ?? null));
  const main = useFocusOnPageChange();
  useShortcuts([
    { keys: ["?"], label: "Show this help", act: () => setIsHelpOpen(true) },
    { keys: ["t"], label: "Switch between light and dark", act: toggleTheme },
    { keys: ["/"], label: "Search in the conversations", act: focusSearch },
  ]);
  const { isReport } = useSource();
  // A report has the numbers of these pages for all of its rollouts only.
  const filtered = isReport && (route.page === "tools" || route.page === "training") ? [] : filteredRuns(route);
  const mistakes = isFiltered(route) ? mistakesIn(route.query, route.page) : [];
  return (
    <RunContext.Provider value={run}>
      <div class={route.page === "rollouts" ? "shell shell-fill" : "shell"}>
        <a class="skip" href="#main" onClick={skipToMain}>
          Skip to the content
        </a>
        <Header route={route} run={run.data} onHelp={() => setIsHelpOpen(true)} />
        <ReportNote />
        {filtered.length > 0 && <FilterBar runs={filtered} />}
        <main id="main" tabIndex={-1} ref={main}>
          {runId !== null && run.error && !run.data ? (
            <ErrorNote message={run.error} onRetry={run.reload} />
          ) : mistakes.length > 0 ? (
            mistakes.map((each) => (
              <ErrorNote message={each.why} onRetry={() => leaveOut(each)} label="Leave it out" />
            ))
          ) : (
            <CurrentPage route={route} />
          )}
        </main>
        {isHelpOpen && <Help onClose={() => setIsHelpOpen(false)} />}
      </div>
    </RunContext.Provider>
  );
}

type Filtered = Extract<Page, { page: "overview" | "tasks" | "tools" | "training" | "rollouts" | "compare" }>;

function isFiltered<P extends Page>(route: P): route is P & Filtered {
  return ["overview", "tasks", "tools", "training", "rollouts", "compare"].includes(route.page);
}

/** The runs whose rollouts the filter bar narrows down; none on pages without it. */
function filteredRuns(route: Page): string[] {
  if (!isFiltered(route)) return [];
  return route.page === "compare" ? route.runs : [route.run];
}

function leaveOut({ name, value }: Mistake): void {
  changeQuery((query) => query.delete(name, value));
}

/** Screen readers and the keyboard start at the top of a new page. */
function useFocusOnPageChange() {
  const main = useRef<HTMLElement>(null);
  const path = location.hash.split("?")[0];
  const first = useRef(path);
  useEffect(() => {
    if (first.current === path) return;
    first.current = path;
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [path]);
  return main;
}

// A link to "#main" would replace the address of the page.
function skipToMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>("input[type=search]");
  field?.focus();
  field?.select();
}
