"""Full marks that some of the package's scorers give to wrong answers, and what such an answer gets instead.

A server takes them back where its settings say so (`take_back_unearned`), and is the package's equal where not.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

UNEVALUATED = "Integral"
"""An integral that is only written down; some of the package's own answers hold one."""

_AROUND_A_WORD = " \t\r\n.!*_`'\""
_AS_NEAR_AS = 1e-4


def less_unearned(score: float, answer: str, entry: dict[str, Any]) -> float:
    """The score that a scorer gave; less where full marks were not earned."""
    check = _CHECKS.get(entry["metadata"]["source_dataset"])
    if check is None or score < 1 or not isinstance(entry["answer"], str):
        return score
    return check(answer, entry["answer"])


def _same_word(answer: str, expected: str) -> float:
    """The package only asks whether anything was said."""
    return float(answer.strip(_AROUND_A_WORD).casefold() == expected.casefold())


def _evaluated(answer: str, expected: str) -> float:
    """What is asked for is the integral of its own derivative: the question, said again."""
    return float(UNEVALUATED not in answer or UNEVALUATED in expected)


def _is_number(answer: str, expected: str) -> float:
    """No distance from `nan` is too large."""
    return float("nan" not in answer.casefold())


def _whole_number(answer: str, expected: str) -> float:
    """The package counts the digits that agree, and `0` agrees with all of 0.1640625 that it says."""
    given, wanted = (float(Fraction(text.replace(",", ""))) for text in (answer, expected))
    if abs(given - wanted) <= _AS_NEAR_AS:
        return 1.0
    shorter, longer = sorted(len(f"{number:.10g}") for number in (given, wanted))
    # Both alike long, each the other's beginning: they differ further back than is written.
    return shorter / longer if shorter < longer else 0.0


_CHECKS: dict[str, Callable[[str, str], float]] = {
    "coin_flip": _whole_number,
    "complex_arithmetic": _is_number,
    "game_of_life_halting": _same_word,
    "intermediate_integration": _evaluated,
    "simple_integration": _evaluated,
}
GENEROUS = frozenset(_CHECKS)
"""The generators whose scorers do so."""
