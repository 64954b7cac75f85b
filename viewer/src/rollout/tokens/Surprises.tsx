/** The sampled tokens that were least probable, each with the tokens before it. */

import { Table } from "../../ui";
import type { Column } from "../../ui";
import { amount, count, percent } from "../../ui/format";
import type { Sequence } from "./cells";
import { Token } from "./TokenText";

const MOST = 200;
const BEFORE = 12;

export function Surprises({ sequence }: { sequence: Sequence }) {
  const known = sequence.logprobs.flatMap((logprob, at) => (logprob === null ? [] : { at, logprob }));
  const rows = known.sort((a, b) => a.logprob - b.logprob || a.at - b.at).slice(0, MOST);
  const columns: Column<{ at: number; logprob: number }>[] = [
    {
      key: "token",
      label: "Token, after those before it",
      render: ({ at }) => (
        <bdi class="token-context">
          {Array.from({ length: Math.min(BEFORE, at) + 1 }, (_, step) => at - Math.min(BEFORE, at) + step).map((each) => (
            <span key={each} class={each === at ? "is-surprise" : "dim"}>
              <Token sequence={sequence} at={each} isOneLine />
              {sequence.texts === null && " "}
            </span>
          ))}
        </bdi>
      ),
    },
    { key: "at", label: "Index", isNumber: true, sortBy: (row) => row.at, render: (row) => count(row.at) },
    { key: "id", label: "Id", isNumber: true, render: (row) => String(sequence.ids[row.at]) },
    {
      key: "probability",
      label: "Probability",
      isNumber: true,
      sortBy: (row) => row.logprob,
      render: (row) => percent(Math.exp(row.logprob)),
    },
    {
      key: "logprob",
      label: "Log-probability",
      isNumber: true,
      sortBy: (row) => row.logprob,
      render: (row) => row.logprob.toFixed(4),
    },
  ];
  return (
    <>
      <p class="dim">{amount(rows.length, "sampled token")}, the least probable first.</p>
      <Table caption="Tokens by surprise" columns={columns} rows={rows} keyOf={(row) => String(row.at)} />
    </>
  );
}
