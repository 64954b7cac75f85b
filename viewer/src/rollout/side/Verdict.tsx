/** What the verifier saw and decided. */

import type { Json, JsonObject, Judgement, Rollout } from "../../api";
import { Card } from "../../ui";
import { number } from "../../ui/format";
import { difference } from "../text/difference";
import type { Piece } from "../text/difference";
import { JsonTree } from "../text/JsonTree";
import { LongText } from "../text/LongText";
import { visible } from "../text/visible";
import { checksOf, comparable, othersOf, pairsOf } from "./verdict";
import type { Checks, Pair } from "./verdict";
import "./verdict.css";

export function Verdict({ rollout }: { rollout: Rollout }) {
  const { graded, given } = rollout;
  const pairs = pairsOf(graded, given);
  const checks = checksOf(graded, given);
  const shown = new Set([
    ...pairs.flatMap((pair) => [pair.extractedName, pair.expectedName]),
    ...checks.flatMap((list) => list.title.split(", ")),
    ...Object.keys(rollout.reward_components),
    "reward",
    "reward_components",
    "why",
    ...(rollout.judges.length > 0 ? ["judge_evaluations"] : []),
  ]);
  const others = othersOf(graded, shown);
  const isEmpty = pairs.length + checks.length + others.length + rollout.judges.length === 0;
  return (
    <Card title="Verification">
      {isEmpty && !("why" in graded) && <p class="dim">Grading added no fields.</p>}
      {pairs.map((pair) => (
        <PairView key={pair.extractedName} pair={pair} />
      ))}
      {checks.map((list) => (
        <Checklist key={list.title} list={list} />
      ))}
      {rollout.judges.map((judge, index) => (
        <JudgeView key={index} judge={judge} />
      ))}
      {others.length > 0 && <Fields entries={others} caption="Fields that grading added" />}
      <Given given={given} />
    </Card>
  );
}

function PairView({ pair }: { pair: Pair }) {
  const expected = comparable(pair.expected);
  const extracted = pair.extracted === null ? null : comparable(pair.extracted);
  const [left, right] =
    extracted === null ? [[{ text: expected, isSame: true }], null] : difference(expected, extracted);
  const isSame = extracted === expected;
  return (
    <div class="pair">
      <PairSide name={pair.expectedName} pieces={left} tag="del" />
      <PairSide name={pair.extractedName} pieces={right} tag="ins" />
      <p class={`pair-result ${isSame ? "is-same" : "is-different"}`}>
        {isSame ? "= same text" : extracted === null ? "✕ nothing extracted" : "≠ the texts differ"}
      </p>
    </div>
  );
}

function PairSide({ name, pieces, tag: Tag }: { name: string; pieces: Piece[] | null; tag: "del" | "ins" }) {
  return (
    <div class="pair-side">
      <h3>{visible(name)}</h3>
      <div class="pair-text" dir="auto" tabIndex={0} role="group" aria-label={name}>
        {pieces === null && <span class="dim">null</span>}
        {pieces?.map((piece, index) =>
          piece.isSame ? visible(piece.text) : <Tag key={index}>{visible(piece.text)}</Tag>,
        )}
      </div>
    </div>
  );
}

function Checklist({ list }: { list: Checks }) {
  const met = list.checks.filter((check) => check.isMet).length;
  return (
    <details class="checks" open={list.checks.length <= 20}>
      <summary>
        <h3>{list.title}</h3>
        <span class="item-size">
          {met} of {list.checks.length} met
        </span>
      </summary>
      <ul>
        {list.checks.map((check, index) => (
          <li key={index} class={check.isMet ? "is-met" : "is-missed"}>
            <span class="check-mark" role="img" aria-label={check.isMet ? "met" : "missed"}>
              {check.isMet ? "✓" : "✕"}
            </span>
            <span class="check-label">{visible(check.label)}</span>
            {check.detail && <span class="check-detail">{visible(check.detail)}</span>}
          </li>
        ))}
      </ul>
    </details>
  );
}

function JudgeView({ judge }: { judge: Judgement }) {
  return (
    <section class="judge">
      <header class="item-head">
        <h3>Judge {visible(judge.name)}</h3>
        {judge.verdict !== null && <strong class="judge-verdict">{visible(judge.verdict)}</strong>}
        {judge.reward !== null && <span class="item-size">reward {number(judge.reward)}</span>}
      </header>
      {judge.answer !== null && <LongText text={judge.answer} isMarkdown />}
      {judge.prompt !== null && (
        <details>
          <summary>Prompt of the judge</summary>
          <LongText text={judge.prompt} />
        </details>
      )}
    </section>
  );
}

function Given({ given }: { given: JsonObject }) {
  const entries = Object.entries(given);
  if (entries.length === 0) return null;
  return (
    <details class="given">
      <summary>Fields of the task’s row ({entries.length})</summary>
      <Fields entries={entries} caption="Fields of the task's row" />
    </details>
  );
}

function Fields({ entries, caption }: { entries: [string, Json][]; caption: string }) {
  return (
    <table class="fields">
      <caption class="hidden">{caption}</caption>
      <tbody>
        {entries.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{visible(name)}</th>
            <td>
              <FieldValue value={value} name={name} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function FieldValue({ value, name }: { value: Json; name: string }) {
  if (value !== null && typeof value === "object") {
    if (Object.keys(value).length === 0)
      return <span class="dim">{Array.isArray(value) ? "empty list" : "empty"}</span>;
    return <JsonTree value={value} label={name} open={JSON.stringify(value).length < 300 ? 2 : 0} />;
  }
  if (typeof value === "string") return value ? <LongText text={value} /> : <span class="dim">empty text</span>;
  if (typeof value === "number") return <>{number(value)}</>;
  return <span class={value === null ? "dim" : undefined}>{String(value)}</span>;
}
