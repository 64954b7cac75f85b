"""The comparisons of an answer as stored in its result, and metrics over many comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nemo_gym.jsonl import JsonObject
from resources_servers.genrm_compare.aggregation import is_tie
from resources_servers.genrm_compare.comparing import Comparison
from resources_servers.genrm_compare.verdicts import Verdict

COMPARISONS = "comparisons"
ALL = ""


def records_of(comparisons: Iterable[Comparison], number: int, names: Sequence[object]) -> list[JsonObject]:
    """Return the comparisons of answer `number` as JSON: the other answer, the preference, and the verdicts.

    `preference` is the degree to which answer `number` is better. `side` is the position at which the judge saw it.
    Scores and rankings are as the judge wrote them. If the judge failed, `preference` is None, and `problem` with the
    reason replaces the verdicts.
    """
    return [_record(each, number, names) for each in comparisons if number in (each.one, each.other)]


def _record(comparison: Comparison, number: int, names: Sequence[object]) -> JsonObject:
    rival = comparison.other if number == comparison.one else comparison.one
    if comparison.preference is None:
        return {"with": names[rival], "preference": None, "problem": comparison.problem}
    own = comparison.preference if number == comparison.one else 1 - comparison.preference
    verdicts = [{"side": 1 if each.first == number else 2, **vars(each.verdict)} for each in comparison.opinions]
    return {"with": names[rival], "preference": own, "verdicts": verdicts}


def won_of(records: Sequence[JsonObject]) -> str:
    """Describe how many of an answer's judged comparisons it won, tied and lost."""
    judged = [each["preference"] for each in records if each["preference"] is not None]
    ties = sum(map(is_tie, judged))
    won = sum(preference > 0.5 and not is_tie(preference) for preference in judged)
    return f"won {won}, tied {ties} and lost {len(judged) - won - ties} of {len(judged)} judged comparisons"


def judge_metrics(tasks: Sequence[Sequence[JsonObject]]) -> dict[str, float]:
    """Return metrics of the judge in percent, over all results and for each `subset`."""
    groups: dict[str, list[JsonObject]] = {ALL: []}
    for row in (row for results in tasks for row in results):
        for subset in {ALL, row.get("subset") or ALL}:
            groups.setdefault(subset, []).extend(row.get(COMPARISONS) or ())
    found = ((subset, name, value) for subset, pairs in groups.items() for name, value in _metrics(pairs).items())
    return {f"{subset}/{name}" if subset else name: value for subset, name, value in found}


def _metrics(pairs: Sequence[JsonObject]) -> dict[str, float]:
    judged = [pair for pair in pairs if pair["preference"] is not None]
    asked = [pair for pair in judged if pair["verdicts"]]
    verdicts = [verdict for pair in asked for verdict in pair["verdicts"]]
    swapped = [pair["verdicts"] for pair in asked if len({verdict["side"] for verdict in pair["verdicts"]}) > 1]
    shares = {
        "judged_pairs_pct": [pair["preference"] is not None for pair in pairs],
        "ties_pct": [is_tie(pair["preference"]) for pair in judged],
        "side_1_pct": [_verdict(each).preference > 0.5 for each in verdicts],
        "contradictory_verdicts_pct": [_verdict(each).contradicts_itself for each in verdicts],
        "swap_disagreement_pct": [_prefers_a_side(each) for each in swapped],
    }
    return {name: 100 * sum(found) / len(found) for name, found in shares.items() if found}


def _prefers_a_side(verdicts: Sequence[JsonObject]) -> bool:
    """Return whether the verdicts on a pair depend on the order of its answers."""
    return len({(_verdict(each).preference > 0.5) == (each["side"] == 1) for each in verdicts}) > 1


def _verdict(record: JsonObject) -> Verdict:
    return Verdict(record["score_1"], record["score_2"], record["ranking"])
