"""The prompts, answers and verdicts of judges, from the fields in which environments report them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nemo_gym.records.conversation import objects_in
from nemo_gym.viewer.conversation import ShownItem, ShownPart, conversation_of
from nemo_gym.viewer.shortening import LARGEST_FIELDS, cut, shortened

EVALUATIONS = "judge_evaluations"
CRITERIA = "criteria"
COMPARISONS = "comparisons"
MOST_JUDGEMENTS = 100
PROMPT_KEYS = ("judge_prompt", "judge_input", "judge_question")
ANSWER_KEYS = ("judge_response", "judge_output", "judge_answer", "judge_reply", "judge_text")
VERDICT_KEYS = ("judge_verdict", "judge_label", "judge_judgement", "judge_decision")
SHOWN_AS_JUDGEMENTS = {EVALUATIONS, "judge_evaluation", *PROMPT_KEYS, *ANSWER_KEYS, *VERDICT_KEYS}


class Judgement(NamedTuple):
    """A judge call, a criterion, or a comparison with another rollout (type `Judgement` in api.ts)."""

    name: str
    prompt: str | None = None
    answer: str | None = None
    verdict: str | None = None
    reward: float | None = None


def judgements_of(record: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the judgements of a rollout as JSON.

    Environments of nemo_gym report judge calls as `judge_evaluations`, with request, response and label. Other
    environments have fields such as `judge_prompt` and `judge_response`.
    """
    evaluations = [*objects_in(record.get(EVALUATIONS)), *objects_in([record.get("judge_evaluation")])]
    criteria = [each for each in objects_in(record.get(CRITERIA)) if "is_met" in each]
    comparisons = [each for each in objects_in(record.get(COMPARISONS)) if "preference" in each]
    found = list(_of_evaluations(evaluations, criteria))
    if not found:
        found = [*_of_fields(record), *map(_of_criterion, criteria)]
    found += map(_of_comparison, comparisons)
    longest = max(2_000, LARGEST_FIELDS // (2 * max(len(found), 1)))
    return [_shortened(each, longest) for each in found[:MOST_JUDGEMENTS]]


def _of_evaluations(
    evaluations: Sequence[Mapping[str, object]], criteria: Sequence[Mapping[str, object]]
) -> Iterator[Judgement]:
    """Yield the judge's calls. If a rubric has one call per criterion, name the calls after the criteria."""
    is_rubric = bool(criteria) and len(criteria) == len(evaluations)
    for number, each in enumerate(evaluations, start=1):
        name = f"judge, call {number}" if len(evaluations) > 1 else "judge"
        criterion = _of_criterion(criteria[number - 1]) if is_rubric else None
        # Read a judge's request like a conversation, because it has the same fields as a row's request.
        params = each.get("responses_create_params") or each.get("request")
        response = each.get("response")
        verdict = each.get("verdict_label", each.get("label", each.get("verdict")))
        yield Judgement(
            criterion.name if criterion else name,
            prompt=_said({"responses_create_params": params}),
            answer=response if isinstance(response, str) else _said({"response": response}),
            verdict=_word(verdict) or (criterion.verdict if criterion else None),
            reward=criterion.reward if criterion else _number(each.get("score", each.get("reward"))),
        )


def _of_fields(record: Mapping[str, object]) -> Iterator[Judgement]:
    prompt, answer, verdict = (
        next((record[key] for key in keys if record.get(key) is not None), None)
        for keys in (PROMPT_KEYS, ANSWER_KEYS, VERDICT_KEYS)
    )
    if prompt is not None or answer is not None or verdict is not None:
        said = _said({"response": answer}) if isinstance(answer, dict) else answer
        yield Judgement("judge", _word(prompt), _word(said), _word(verdict))


def _of_criterion(criterion: Mapping[str, object]) -> Judgement:
    weight, is_met = criterion.get("weight"), bool(criterion.get("is_met"))
    name = f"{criterion.get('name')}{'' if weight is None else f' (weight {weight})'}"
    verdict = "met" if is_met else "not met"
    return Judgement(name, answer=_word(criterion.get("reason")), verdict=verdict, reward=float(is_met))


def _of_comparison(comparison: Mapping[str, object]) -> Judgement:
    preference = _number(comparison.get("preference"))
    verdicts = objects_in(comparison.get("verdicts"))
    texts = [", ".join(f"{name} {value}" for name, value in each.items()) for each in verdicts]
    verdict = None
    if preference is not None:
        verdict = "better" if preference > 0.5 else "worse" if preference < 0.5 else "tie"
    answer = "\n".join(texts) or _word(comparison.get("problem"))
    return Judgement(f"compared with {comparison.get('with')}", answer=answer, verdict=verdict, reward=preference)


def _said(record: dict[str, object]) -> str | None:
    """Return the text of a request or a response. If several items have text, put the role before each text."""
    items = conversation_of(record, lambda *_: None).items
    texts = [(item.get("role", item["kind"]), _text_of(item)) for item in items]
    said = [(role, text) for role, text in texts if text]
    if len(said) == 1:
        return said[0][1]
    return "\n\n".join(f"[{role}]\n{text}" for role, text in said) or None


def _text_of(item: ShownItem) -> str:
    return item.get("text") or "\n".join(_texts(item.get("parts") or ()))


def _texts(parts: Iterable[ShownPart]) -> Iterator[str]:
    for part in parts:
        yield part["text"] if "text" in part else f"({part['kind']})"


def _word(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(shortened(value))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _shortened(judgement: Judgement, longest: int) -> dict[str, object]:
    fields = judgement._asdict()
    return {name: cut(value, longest) if isinstance(value, str) else value for name, value in fields.items()}
