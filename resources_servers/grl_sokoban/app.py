"""Play Sokoban, a few moves per turn."""

import asyncio
from typing import ClassVar

from pydantic import BaseModel, Field, model_validator

from nemo_gym import (
    BaseResetRequest,
    BaseResourcesServerConfig,
    BaseStepRequest,
    BaseStepResponse,
    InvalidTask,
    ReverifyMode,
    SessionState,
    SteppedResourcesServer,
)
from nemo_gym.grading import actions_in
from resources_servers.grl_sokoban.generation import generate
from resources_servers.grl_sokoban.level import MOVES, Level


class RoomSize(BaseModel):
    """The size of a room and its number of boxes."""

    dim_room: tuple[int, int] = (7, 7)
    """Rows and columns, including the outer walls."""
    num_boxes: int = Field(default=2, ge=1, le=6)

    @model_validator(mode="after")
    def _has_sides(self) -> "RoomSize":
        if not all(4 <= side <= 16 for side in self.dim_room):
            raise ValueError("dim_room: each side of a room must be 4 to 16 squares long")
        return self


class SokobanConfig(BaseResourcesServerConfig, RoomSize):
    """The rules of the game. The room size applies to rows that contain only a seed."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    max_moves: int = Field(default=100, ge=1)
    """The number of moves after which the game is truncated."""
    moves_per_turn: int = Field(default=10, ge=1)
    """Maximum number of moves per answer. Further moves are ignored."""
    unreadable_answers: int = Field(default=3, ge=1)
    """The limit on consecutive answers without a move. At the limit, the game is truncated."""
    solved_reward: float = 1.0
    box_reward: float = 0.0
    """Reward for pushing a box onto a goal. It is deducted when a box leaves a goal."""
    move_reward: float = 0.0
    """Reward for every move, even against a wall. A negative value is a penalty."""


class ResetRequest(BaseResetRequest):
    """The row: a level, or the seed to generate one."""

    level: str | None = None
    seed: int | None = None
    dim_room: tuple[int, int] | None = None
    num_boxes: int | None = None

    @model_validator(mode="after")
    def _names_a_level(self) -> "ResetRequest":
        if self.level is None and self.seed is None:
            raise ValueError("a row needs a level or a seed")
        return self


class Game(SessionState):
    """The state of a rollout's game."""

    level: Level | None = None
    moves: int = 0
    unreadable: int = 0


class SokobanServer(SteppedResourcesServer):
    """A server that reads moves from each turn. The game ends when every box is on a goal."""

    config: SokobanConfig

    async def reset(self, body: ResetRequest, game: Game) -> str:
        try:
            game.level = await asyncio.to_thread(self._level, body)
        except ValueError as error:
            raise InvalidTask(f"{self.config.name}: the row's level: {error}") from error
        return str(game.level)

    async def step(self, body: BaseStepRequest, game: Game) -> BaseStepResponse:
        assert game.level is not None
        wanted = actions_in(body.response.last_text, MOVES)
        if not wanted:
            return self._unreadable(game)
        game.unreadable = 0
        before, moves = game.level, wanted[: min(self.config.moves_per_turn, self.config.max_moves - game.moves)]
        made = 0
        for move in moves:
            game.level = game.level.after(move)
            made += 1
            if game.level.is_solved:
                break
        game.moves += made
        return self._answer_to(before, game, made)

    def _answer_to(self, before: Level, game: Game, made: int) -> BaseStepResponse:
        level = game.level
        assert level is not None
        boxes = level.boxes_on_goals - before.boxes_on_goals
        reward = made * self.config.move_reward + boxes * self.config.box_reward
        if level.is_solved:
            reward += self.config.solved_reward
            return BaseStepResponse(observation=f"{level}\nSolved.", reward=reward, terminated=True)
        is_over = game.moves >= self.config.max_moves
        observation = f"{level}\nNo moves are left." if is_over else str(level)
        return BaseStepResponse(observation=observation, reward=reward, truncated=is_over)

    def _level(self, body: ResetRequest) -> Level:
        if body.level is not None:
            level = Level.of_text(body.level)
        else:
            size = RoomSize(
                dim_room=body.dim_room or self.config.dim_room, num_boxes=body.num_boxes or self.config.num_boxes
            )
            assert body.seed is not None
            level = generate(body.seed, size.dim_room, size.num_boxes)
        if level.is_solved:
            raise ValueError("the level is already solved")
        return level

    def _unreadable(self, game: Game) -> BaseStepResponse:
        game.unreadable += 1
        if game.unreadable >= self.config.unreadable_answers:
            return BaseStepResponse(observation="You have not made a move. The game is over.", truncated=True)
        return BaseStepResponse(observation=f"That names no move. The moves are {', '.join(MOVES)}.\n{game.level}")


if __name__ == "__main__":
    SokobanServer.run_webserver()
