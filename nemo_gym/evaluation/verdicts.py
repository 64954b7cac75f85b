"""The verdicts in a graded rollout: one for the whole answer, or one per criterion of a rubric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

WHOLE = "label"
"""The name of the verdict on a whole answer."""
YES, NO, PARTLY = "yes", "no", "partly"
LABEL_SETS = ((YES, NO), (YES, NO, PARTLY), ("correct", "incorrect", "not attempted"))
"""Sets of labels. People choose from the first set that contains all verdicts of a run, or else from the verdicts."""
SPELLINGS: Mapping[str, Sequence[str]] = {
    YES: ("y", "1", "true", "correct", "right", "met", "pass", "ja", "oui", "sí"),
    NO: ("n", "0", "false", "incorrect", "wrong", "not met", "fail", "nein", "non"),
    PARTLY: ("0.5", "partial", "half"),
    "not attempted": ("not_attempted", "na"),
}
"""Other accepted spellings of each label."""


def verdicts_of(rollout: Mapping[str, object]) -> dict[str, str]:
    """Return the verdicts, keyed by criterion. Without criteria, the only key is `label`, for the whole answer."""
    criteria = rollout.get("criteria")
    if (
        isinstance(criteria, list)
        and criteria
        and all(isinstance(each, dict) and "is_met" in each for each in criteria)
    ):
        return {str(each.get("name")): YES if each["is_met"] else NO for each in criteria}
    verdict = rollout.get("verdict")
    return {WHOLE: verdict if isinstance(verdict, str) else _of_reward(rollout)}


def stratum_of(rollout: Mapping[str, object]) -> str:
    """Return the group to which a rollout belongs when a sample is drawn: the verdict on the whole answer.

    If the rollout has only verdicts on criteria, the group depends on the reward: `yes`, `no` or `partly`.
    """
    verdicts = verdicts_of(rollout)
    return verdicts[WHOLE] if verdicts.keys() == {WHOLE} else _of_reward(rollout)


def choices_for(verdicts: Iterable[str]) -> tuple[str, ...]:
    """Return the labels from which people can choose. `verdicts` are all verdicts of the grader."""
    seen = set(verdicts)
    return next((labels for labels in LABEL_SETS if seen <= set(labels)), tuple(sorted(seen)))


def label_in(cell: str, choices: Sequence[str]) -> str | None:
    """Return the label that a person meant, or None if it is not one of the choices."""
    plain = " ".join(cell.casefold().split())
    for choice in choices:
        if plain == choice.casefold() or plain in SPELLINGS.get(choice, ()):
            return choice
    return None


def _of_reward(rollout: Mapping[str, object]) -> str:
    reward = rollout.get("reward")
    value = float(reward) if isinstance(reward, (int, float)) else 0.0
    return YES if value >= 1 else NO if value <= 0 else PARTLY
