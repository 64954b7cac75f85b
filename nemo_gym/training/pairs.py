"""Choose preference pairs among the rollouts of one prompt, and report why other rollouts are not in a pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

PairLimit = int | Literal["best_worst", "all"]
ROUNDING = 1e-9
"""The tolerance for differences of rewards, because 0.3 - 0.1 is less than 0.2 in floating-point arithmetic."""


class Pair(NamedTuple):
    """A pair of rollouts, by their indexes in the sequence of rewards."""

    chosen: int
    rejected: int


class Pairing(NamedTuple):
    """The pairs of a prompt. `unused` maps the index of each rollout outside a pair to the reason."""

    pairs: list[Pair]
    unused: dict[int, str]


def paired(
    rewards: Sequence[float], limit: PairLimit, *, min_reward: float | None = None, min_difference: float = 0.0
) -> Pairing:
    """Pair rollouts of one prompt. Pairs with the largest difference of rewards come first.

    Pairs with equal differences are ordered so that they use each rollout in turn. The chosen rollout has at least
    `min_reward`. The rewards of a pair are never equal, and differ by at least `min_difference`.
    """
    best_first = sorted(range(len(rewards)), key=lambda place: (-rewards[place], place))
    most = len(rewards) if limit == "all" else 1 if limit == "best_worst" else limit

    def is_apart(chosen: int, rejected: int) -> bool:
        difference = rewards[chosen] - rewards[rejected]
        return difference > 0 and difference >= min_difference - ROUNDING

    def is_allowed(chosen: int, rejected: int) -> bool:
        return is_apart(chosen, rejected) and (min_reward is None or rewards[chosen] >= min_reward)

    def order(ranks: tuple[int, int]) -> tuple[float, int, int]:
        best, worst = ranks
        difference = rewards[best_first[best]] - rewards[best_first[~worst]]
        return -difference, (worst - best) % len(rewards), best

    # Compare only the `most` best with the `most` worst rollouts, because the `most` largest differences are there.
    ranks = range(min(most, len(rewards)))
    allowed = [(best, worst) for best in ranks for worst in ranks if is_allowed(best_first[best], best_first[~worst])]
    ordered = sorted(allowed, key=order)[: None if limit == "all" else most]
    pairs = [Pair(best_first[best], best_first[~worst]) for best, worst in ordered]
    used = {place for pair in pairs for place in pair}
    best, worst = best_first[0], best_first[-1]

    def reason(place: int) -> str:
        if len(rewards) == 1:
            return "only rollout of its prompt"
        if rewards[best] == rewards[worst]:
            return "tie"
        if is_allowed(best, place) or is_allowed(place, worst):
            return "more than pairs"
        if is_apart(best, place) or is_apart(place, worst):
            return "chosen side below min_reward"
        return "below min_difference"

    return Pairing(pairs, {place: reason(place) for place in range(len(rewards)) if place not in used})
