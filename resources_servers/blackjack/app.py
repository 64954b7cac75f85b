"""Play one hand of blackjack, one decision per turn."""

from typing import ClassVar

from pydantic import Field

from nemo_gym import (
    BaseResetRequest,
    BaseResourcesServerConfig,
    BaseStepRequest,
    BaseStepResponse,
    ReverifyMode,
    SessionState,
    SteppedResourcesServer,
)
from nemo_gym.grading import actions_in
from resources_servers.blackjack.game import BLACKJACK, Hand, Outcome, Rules, is_natural, value_of

ACTIONS = ("hit", "stand")


class BlackjackConfig(BaseResourcesServerConfig, Rules):
    """The server's settings, including the rules of the table."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    natural_reward: float = 1.0
    """The reward for winning with 21 on the first two cards. Many tables pay 1.5."""
    unreadable_answers: int = Field(default=3, ge=1)
    """The number of consecutive answers without an action after which the hand is lost."""


class ResetRequest(BaseResetRequest):
    """The row, whose seed determines the deck."""

    seed: int


class Table(SessionState):
    """The state of a rollout's game: a single hand."""

    hand: Hand | None = None
    unreadable: int = 0


class BlackjackServer(SteppedResourcesServer):
    """A server that parses `hit` or `stand` from each turn. A win earns 1, a loss -1, and a draw 0."""

    config: BlackjackConfig

    async def reset(self, body: ResetRequest, table: Table) -> str:
        table.hand = Hand(body.seed, self.config)
        return _shown(table.hand)

    async def step(self, body: BaseStepRequest, table: Table) -> BaseStepResponse:
        hand = table.hand
        assert hand is not None
        actions = actions_in(body.response.last_text, ACTIONS)
        if not actions:
            return self._unreadable(table)
        table.unreadable = 0
        if actions[-1] == "hit":
            hand.hit()
        else:
            hand.stand()
        if hand.outcome is None:
            return BaseStepResponse(observation=_shown(hand))
        return BaseStepResponse(observation=_result(hand), reward=self._reward(hand), terminated=True)

    def _reward(self, hand: Hand) -> float:
        if hand.outcome is Outcome.WON and is_natural(hand.player):
            return self.config.natural_reward
        return float(hand.outcome or 0)

    def _unreadable(self, table: Table) -> BaseStepResponse:
        table.unreadable += 1
        if table.unreadable >= self.config.unreadable_answers:
            observation = "You have not said what to do, and lose your stake."
            return BaseStepResponse(observation=observation, reward=float(Outcome.LOST), terminated=True)
        assert table.hand is not None
        return BaseStepResponse(observation=f"That is neither hit nor stand. {_shown(table.hand)}")


def _shown(hand: Hand) -> str:
    return f"You hold {_cards(hand.player)}. The dealer shows {hand.dealer[0]}. Hit or stand?"


def _result(hand: Hand) -> str:
    if value_of(hand.player) > BLACKJACK:
        return f"You hold {_cards(hand.player)}: too much. You lose."
    verdict = {Outcome.WON: "You win.", Outcome.DRAWN: "Nobody wins.", Outcome.LOST: "You lose."}
    assert hand.outcome is not None
    return f"You hold {_cards(hand.player)}, the dealer {_cards(hand.dealer)}. {verdict[hand.outcome]}"


def _cards(hand: list[str]) -> str:
    return f"{' '.join(hand)} ({value_of(hand)})"


if __name__ == "__main__":
    BlackjackServer.run_webserver()
