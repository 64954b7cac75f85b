/** All runs in the given paths: what they are, how they went, and which to compare. */

import { useMemo } from "preact/hooks";
import type { Run } from "../api";
import { isChanging, useEvery, useLoaded } from "../data";
import { useSource } from "../source";
import { changeQuery, href, useParameter, useRoute } from "../state";
import { ButtonLink, Command, Empty, ErrorNote, Problems, Spinner } from "../ui";
import { amount } from "../ui/format";
import { RunTable } from "./runs/RunTable";
import { inOrder } from "./runs/columns";
import "./runs.css";

const MOST_COMPARED = 6;

export default function Runs() {
  const source = useSource();
  const loaded = useLoaded("runs", (signal) => source.runs(signal));
  const isBusy = loaded.data?.runs.some(isChanging) ?? false;
  useEvery(source.isLive ? (isBusy ? 1 : 5) : null, loaded.reload);
  if (!loaded.data) {
    return loaded.error ? (
      <ErrorNote message={loaded.error} onRetry={loaded.reload} />
    ) : (
      <Spinner label="Looking for runs" />
    );
  }
  const { runs, problems } = loaded.data;
  return (
    <>
      {loaded.error && <ErrorNote message={loaded.error} onRetry={loaded.reload} />}
      {runs.length === 0 ? <NoRuns /> : <RunList runs={runs} />}
      <Problems problems={problems} />
    </>
  );
}

function RunList({ runs }: { runs: Run[] }) {
  const { query } = useRoute();
  const [text, setText] = useParameter("name");
  const [sort, setSort] = useParameter("by");
  const picked = query.getAll("pick").filter((id) => runs.some((run) => run.id === id));
  const order = sortOf(sort);
  const shown = useMemo(
    () =>
      inOrder(
        runs.filter((run) => run.name.toLowerCase().includes((text ?? "").toLowerCase())),
        order,
      ),
    [runs, text, sort],
  );
  return (
    <>
      <div class="runs-head">
        <h1>{amount(runs.length, "run")}</h1>
        <input
          class="field"
          type="search"
          aria-label="Find runs by name"
          placeholder="Find by name  /"
          value={text ?? ""}
          onInput={(event) => setText(event.currentTarget.value || null)}
        />
        {runs.length > 1 && <CompareButton picked={picked} />}
      </div>
      <RunTable
        runs={shown}
        picked={picked}
        onPick={(id, isPicked) => changeQuery((changed) => setPicked(changed, id, isPicked))}
        sort={order}
        onSort={({ key, isDescending }) => setSort(isDescending ? `-${key}` : key)}
      />
      {shown.length === 0 && <Empty title={`No run has “${text}” in its name`} />}
    </>
  );
}

/** The newest first, unless the address has another order. */
function sortOf(text: string | null): { key: string; isDescending: boolean } {
  if (!text) return { key: "started", isDescending: true };
  return { key: text.replace(/^-/, ""), isDescending: text.startsWith("-") };
}

function setPicked(query: URLSearchParams, id: string, isPicked: boolean): void {
  const others = query.getAll("pick").filter((each) => each !== id);
  query.delete("pick");
  for (const each of isPicked ? [...others, id] : others) query.append("pick", each);
}

function CompareButton({ picked }: { picked: string[] }) {
  const isPossible = picked.length >= 2 && picked.length <= MOST_COMPARED;
  if (isPossible) {
    return (
      <ButtonLink kind="primary" to={href({ page: "compare", runs: picked })}>
        Compare {picked.length} runs
      </ButtonLink>
    );
  }
  return (
    <span class="dim" role="status">
      {compareHint(picked.length)}
    </span>
  );
}

function compareHint(picked: number): string {
  if (picked > MOST_COMPARED) return `At most ${MOST_COMPARED} runs can be compared.`;
  return picked === 1 ? "Choose one more to compare." : "Choose runs to compare them.";
}

const FIRST_RUN =
  "ng eval run --resources-server mcqa --model-type sample_model --split example --output results/first.jsonl";

function NoRuns() {
  return (
    <Empty title="No runs yet">
      <h1 class="hidden">Runs</h1>
      <p>
        A run is a results file such as results/x.jsonl with its x_run.json. This page shows it as soon as it exists.
        To make one:
      </p>
      <Command text={FIRST_RUN} />
    </Empty>
  );
}
