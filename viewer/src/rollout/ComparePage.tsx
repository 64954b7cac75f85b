/** Two to six runs compared, matched by task. The first one is the baseline. */

import type { Comparison, Json } from "../api";
import { useLoaded } from "../data";
import { useSource } from "../source";
import { href, navigate, useFilter } from "../state";
import { Button, ButtonLink, Card, Empty, ErrorNote, Spinner, WarnNote } from "../ui";
import { amount, count, plain } from "../ui/format";
import { useTitle } from "../ui/title";
import { Differences } from "./compare/Differences";
import { Means } from "./compare/Means";
import { Tasks } from "./compare/Tasks";
import { visible } from "./text/visible";
import "./compare/compare.css";
import "./text/text.css";

interface Compared {
  comparison: Comparison;
  names: Record<string, string>;
}

export default function ComparePage({ runs }: { runs: string[] }) {
  const source = useSource();
  const [filter] = useFilter();
  const isPossible = runs.length >= 2 && runs.length <= 6;
  const key = isPossible ? `${runs.join("/")}?${JSON.stringify(filter)}` : null;
  const loaded = useLoaded(key, async (signal): Promise<Compared> => {
    const [comparison, listed] = await Promise.all([source.compare(runs, filter, signal), source.runs(signal)]);
    return { comparison, names: Object.fromEntries(listed.runs.map((run) => [run.id, run.name])) };
  });
  if (!isPossible) {
    return (
      <>
        <h1 class="hidden">Compare runs</h1>
        <Empty title="Choose 2 to 6 runs">
          <p>Mark them in the list of runs, then choose Compare.</p>
          <ButtonLink to={href({ page: "runs" })}>Go to the runs</ButtonLink>
        </Empty>
      </>
    );
  }
  if (loaded.data === null) {
    return loaded.error === null ? (
      <Spinner label="Comparing the runs" />
    ) : (
      <ErrorNote message={loaded.error} onRetry={loaded.reload} />
    );
  }
  return (
    <div class={loaded.isLoading ? "compare is-stale" : "compare"}>
      {loaded.error !== null && <ErrorNote message={loaded.error} onRetry={loaded.reload} />}
      <Body {...loaded.data} />
    </div>
  );
}

function Body({ comparison, names }: Compared) {
  const source = useSource();
  const { runs } = comparison;
  useTitle(`Compare ${runs.map((run) => names[run] ?? run).join(", ")}`);
  return (
    <>
      <header class="compare-head">
        <h1>Compare {amount(runs.length, "run")}</h1>
        <p class="dim">
          {amount(comparison.shared, "shared task")}
          {onlyText(comparison.only, names)}
        </p>
        {!source.isReport && <Baseline runs={runs} names={names} />}
      </header>
      {comparison.notes.length > 0 && (
        <WarnNote>
          {comparison.notes.map((note, index) => (
            <p key={index}>{note}</p>
          ))}
        </WarnNote>
      )}
      <div class="compare-grid">
        <Card title="Mean reward">
          {comparison.means.length > 0 ? (
            <Means comparison={comparison} names={names} />
          ) : (
            <p class="dim">The runs share no scored task.</p>
          )}
        </Card>
        <Card title={`Compared with ${names[runs[0] ?? ""] ?? "the baseline"}`}>
          {comparison.differences.length > 0 ? (
            <Differences differences={comparison.differences} names={names} />
          ) : (
            <p class="dim">Nothing to compare.</p>
          )}
        </Card>
        <Card title="Tasks by difference" wide>
          <Tasks comparison={comparison} names={names} />
        </Card>
        <Card title="Settings that differ" wide>
          <Settings comparison={comparison} names={names} />
        </Card>
      </div>
    </>
  );
}

function onlyText(only: Record<string, number>, names: Record<string, string>): string {
  return Object.entries(only)
    .filter(([, tasks]) => tasks > 0)
    .map(([run, tasks]) => ` · ${count(tasks)} only in ${names[run] ?? run}`)
    .join("");
}

/** The order of the runs is in the address: making one the baseline moves it to the front. */
function Baseline({ runs, names }: { runs: string[]; names: Record<string, string> }) {
  const choose = (run: string): void =>
    navigate(href({ page: "compare", runs: [run, ...runs.filter((other) => other !== run)] }));
  if (runs.length === 2) return <Button onClick={() => choose(runs[1] ?? "")}>Swap the runs</Button>;
  return (
    <label>
      Baseline{" "}
      <select class="field" value={runs[0]} onChange={(event) => choose(event.currentTarget.value)}>
        {runs.map((run) => (
          <option key={run} value={run}>
            {names[run] ?? run}
          </option>
        ))}
      </select>
    </label>
  );
}

function Settings({ comparison, names }: Compared) {
  if (comparison.settings.length === 0) return <p class="dim">All recorded settings are equal.</p>;
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Table of settings">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">setting</th>
            {comparison.runs.map((run) => (
              <th key={run} scope="col">
                {names[run] ?? run}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {comparison.settings.map(({ name, values }) => (
            <tr key={name}>
              <th scope="row" class="mono">
                {visible(name)}
              </th>
              {values.map((value, index) => (
                <td key={index} class="mono settings-value">
                  {settingText(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function settingText(value: Json): string {
  return visible(plain(value));
}
