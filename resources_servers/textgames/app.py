"""Play games of TextArena, GEM and skyrl-gym, one move per turn."""

from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field

from nemo_gym import (
    BaseResetRequest,
    BaseResetResponse,
    BaseResourcesServerConfig,
    BaseStepRequest,
    BaseStepResponse,
    ReverifyMode,
    SessionState,
    SteppedResourcesServer,
)
from nemo_gym.grading import strip_reasoning
from resources_servers.textgames.library import Library, LibraryName, Seat, opening_of


class TextGamesConfig(BaseResourcesServerConfig):
    """The library, the game for rows that do not name one, and the limits of waits."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    library: LibraryName = "included"
    game: str = "guess_the_number"
    """The library's own name of a game, such as `Wordle-v0`, `game:Sudoku-v0-easy` or `gsm8k`."""
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The arguments of each game. A row's own are merged over them."""
    python: str | None = None
    """The interpreter that has the library. By default, the server's own."""
    start_timeout_s: float = Field(default=120.0, gt=0)
    """Seconds to wait until the library is imported, and for each start of a game."""
    step_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds to wait for each step."""


class ResetRequest(BaseResetRequest):
    """The row: the game's seed and arguments, and a game if it differs from the config's."""

    seed: int = Field(default=0, ge=0)
    game: str | None = None
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    players: int | None = Field(default=None, ge=1, le=15)
    """The number of players of a TextArena game, by default the smallest one that it allows."""
    roles: list[str] = Field(default_factory=list)
    """The agents that play a TextArena game, as named by `gymnasium_agent`. Without them, other players are random."""
    extras: dict[str, Any] = Field(default_factory=dict)
    """The arguments of a skyrl-gym environment, such as `{reward_spec: {ground_truth: "42"}}`."""


class Game(SessionState):
    """The state of a rollout's game."""

    seat: Seat | None = None

    async def close(self) -> None:
        if self.seat is not None:
            await self.seat.close()


class TextGamesServer(SteppedResourcesServer):
    """A server that passes each turn's text to a game, and returns the game's own rewards."""

    config: TextGamesConfig

    @cached_property
    def library(self) -> Library:
        return Library(self.config.library, self.config.python, self.config.start_timeout_s)

    async def reset(self, body: ResetRequest, game: Game) -> BaseResetResponse:
        name = body.game or self.config.game
        game.seat = await self.library.seat(name)
        kwargs = {**self.config.env_kwargs, **body.env_kwargs}
        opening = opening_of(body.model_dump(mode="json") | {"game": name, "env_kwargs": kwargs})
        return await game.seat.begin(opening, self.config.start_timeout_s)

    async def step(self, body: BaseStepRequest, game: Game) -> BaseStepResponse:
        assert game.seat is not None
        action = strip_reasoning(body.response.last_text).strip()
        return await game.seat.step(action, self.config.step_timeout_s)

    async def close_owned(self) -> None:
        await super().close_owned()
        await self.library.close()


if __name__ == "__main__":
    TextGamesServer.run_webserver()
