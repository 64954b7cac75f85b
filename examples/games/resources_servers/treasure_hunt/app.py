"""Walk to a treasure on a square board, one step per turn."""

from pydantic import Field

from nemo_gym import (
    BaseResetRequest,
    BaseResourcesServerConfig,
    BaseStepRequest,
    BaseStepResponse,
    SessionState,
    SteppedResourcesServer,
)
from nemo_gym.grading import actions_in

MOVES = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
Place = tuple[int, int]
"""A row and a column, from 1."""


class TreasureHuntConfig(BaseResourcesServerConfig):
    side: int = Field(default=3, ge=2)
    """The number of rows and of columns."""
    max_turns: int = Field(default=4, ge=1)


class ResetRequest(BaseResetRequest):
    start: Place
    treasure: Place


class Hunt(SessionState):
    """Where the player and the treasure are."""

    at: Place = (1, 1)
    treasure: Place = (1, 1)
    turns: int = 0

    def __str__(self) -> str:
        return "row={} column={} treasure_row={} treasure_column={}".format(*self.at, *self.treasure)


class TreasureHuntServer(SteppedResourcesServer):
    """A game that ends with reward 1 on the treasure, or with 0 after the last turn."""

    config: TreasureHuntConfig

    async def reset(self, body: ResetRequest, hunt: Hunt) -> str:
        hunt.at, hunt.treasure = body.start, body.treasure
        return str(hunt)

    async def step(self, body: BaseStepRequest, hunt: Hunt) -> BaseStepResponse:
        hunt.turns += 1
        # Other words, and steps off the board, cost a turn.
        for move in actions_in(body.response.last_text, MOVES)[:1]:
            to = hunt.at[0] + MOVES[move][0], hunt.at[1] + MOVES[move][1]
            hunt.at = to if all(1 <= number <= self.config.side for number in to) else hunt.at
        is_found = hunt.at == hunt.treasure
        return BaseStepResponse(
            observation=str(hunt), reward=float(is_found), terminated=is_found,
            truncated=not is_found and hunt.turns >= self.config.max_turns,
        )  # fmt: skip


if __name__ == "__main__":
    TreasureHuntServer.run_webserver()
