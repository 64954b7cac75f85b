"""The rules of one hand of blackjack from a shuffled deck."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import IntEnum

from pydantic import BaseModel, Field

RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
BLACKJACK = 21
DEALER_STANDS = 17


class Outcome(IntEnum):
    """The result of a hand. Its value is the number of stakes that the player wins."""

    LOST = -1
    DRAWN = 0
    WON = 1


class Rules(BaseModel):
    """The rules that differ between tables."""

    decks: int = Field(default=1, ge=1, le=8)
    dealer_hits_soft_17: bool = False


def value_of(hand: list[str]) -> int:
    """Return the hand's points. Court cards count as 10, an ace as 11 or, if that exceeds 21, as 1."""
    points = sum(_points(rank) for rank in hand)
    return points + 10 if "A" in hand and points + 10 <= BLACKJACK else points


def is_soft(hand: list[str]) -> bool:
    """Return whether an ace counts as 11."""
    return value_of(hand) != sum(_points(rank) for rank in hand)


def is_natural(hand: list[str]) -> bool:
    """Return whether the hand has 21 points with two cards."""
    return len(hand) == 2 and value_of(hand) == BLACKJACK


def _points(rank: str) -> int:
    return RANKS.index(rank) + 1 if RANKS.index(rank) < 10 else 10


@dataclass
class Hand:
    """A hand in progress: the player's and the dealer's cards, and the rest of the deck, which the seed shuffles."""

    seed: int
    rules: Rules = field(default_factory=Rules)
    player: list[str] = field(default_factory=list)
    dealer: list[str] = field(default_factory=list)
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        self._deck = list(RANKS) * 4 * self.rules.decks
        random.Random(f"blackjack {self.seed}").shuffle(self._deck)
        for _ in range(2):
            self.player.append(self._deck.pop())
            self.dealer.append(self._deck.pop())

    def hit(self) -> None:
        """Take a card. More than 21 points lose the hand."""
        self.player.append(self._deck.pop())
        if value_of(self.player) > BLACKJACK:
            self.outcome = Outcome.LOST

    def stand(self) -> None:
        """Stop drawing. The dealer draws, then the hands are compared."""
        while self._dealer_draws():
            self.dealer.append(self._deck.pop())
        own, dealers = value_of(self.player), value_of(self.dealer)
        if is_natural(self.player) != is_natural(self.dealer):
            self.outcome = Outcome.WON if is_natural(self.player) else Outcome.LOST
        elif dealers > BLACKJACK or own > dealers:
            self.outcome = Outcome.WON
        else:
            self.outcome = Outcome.DRAWN if own == dealers else Outcome.LOST

    def _dealer_draws(self) -> bool:
        points = value_of(self.dealer)
        is_soft_17 = points == DEALER_STANDS and is_soft(self.dealer)
        return points < DEALER_STANDS or (is_soft_17 and self.rules.dealer_hits_soft_17)


def best_play(seed: int, rules: Rules | None = None) -> tuple[list[str], Outcome]:
    """Return the best actions for a known deck, with as few hits as possible, and their outcome."""
    best: tuple[list[str], Outcome] | None = None
    for hits in range(BLACKJACK):
        hand = Hand(seed, rules or Rules())
        for _ in range(hits):
            hand.hit()
        if hand.outcome is None:
            hand.stand()
        is_bust = value_of(hand.player) > BLACKJACK
        actions = ["hit"] * hits + ([] if is_bust else ["stand"])
        assert hand.outcome is not None
        if best is None or hand.outcome > best[1]:
            best = actions, hand.outcome
        if is_bust:
            break
    assert best is not None
    return best
