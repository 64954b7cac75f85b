"""Correct the full marks that some of reasoning-gym's scorers give to wrong answers.

A server applies the corrections if `take_back_unearned` is set. Otherwise it returns reasoning-gym's scores.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

UNEVALUATED = "Integral"
"""The text that marks an unevaluated integral. Some of reasoning-gym's own answers contain such an integral."""

_AROUND_A_WORD = " \t\r\n.!*_`'\""
_AS_NEAR_AS = 1e-4


def less_unearned(score: float, answer: str, entry: dict[str, Any]) -> float:
    """Return the score, or a lower one if the scorer gave full marks to a wrong answer."""
    check = _CHECKS.get(entry["metadata"]["source_dataset"])
    if check is None or score < 1 or not isinstance(entry["answer"], str):
        return score
    return check(answer, entry["answer"])


def _same_word(answer: str, expected: str) -> float:
    """Compare the answer with the expected word, because reasoning-gym accepts any text."""
    return float(answer.strip(_AROUND_A_WORD).casefold() == expected.casefold())


def _evaluated(answer: str, expected: str) -> float:
    """Reject an unevaluated integral, because it only repeats the question."""
    return float(UNEVALUATED not in answer or UNEVALUATED in expected)


def _is_number(answer: str, expected: str) -> float:
    """Reject `nan`, which passes reasoning-gym's distance check."""
    return float("nan" not in answer.casefold())


def _all_digits(answer: str, expected: str) -> float:
    """Compare all digits, because reasoning-gym accepts a prefix such as `0` for 0.1640625."""
    given, wanted = (float(Fraction(text.replace(",", ""))) for text in (answer, expected))
    if abs(given - wanted) <= _AS_NEAR_AS:
        return 1.0
    shorter, longer = sorted(len(f"{number:.10g}") for number in (given, wanted))
    # Return 0 for equal lengths, because the numbers then differ only in digits that the format cuts off.
    return shorter / longer if shorter < longer else 0.0


_CHECKS: dict[str, Callable[[str, str], float]] = {
    "coin_flip": _all_digits,
    "complex_arithmetic": _is_number,
    "game_of_life_halting": _same_word,
    "intermediate_integration": _evaluated,
    "simple_integration": _evaluated,
}
GENEROUS = frozenset(_CHECKS)
"""The generators whose scorers give full marks to wrong answers."""
