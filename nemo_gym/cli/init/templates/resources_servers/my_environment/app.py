"""Find a hidden number by guessing: a small working task, to be replaced by your own."""

from typing import Annotated

from pydantic import Field

from nemo_gym import (
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SessionState,
    SimpleResourcesServer,
    tool,
)


class Game(SessionState):
    """The server's state in one rollout."""

    hidden_number: int = 0
    guesses: int = 0
    is_found: bool = False


class SeedRequest(BaseSeedSessionRequest):
    """The fields of a row that the session starts with."""

    hidden_number: int


class VerifyRequest(BaseVerifyRequest):
    """The model's response, and the row's field that decides the reward."""

    max_guesses: int


class MyEnvironmentServer(SimpleResourcesServer):
    """A server that hides a number from 1 to 10 and compares it with each guess."""

    async def seed_session(self, body: SeedRequest, game: Game) -> None:
        """Set up the rollout, once before the model's first turn."""
        game.hidden_number = body.hidden_number

    @tool
    async def guess_number(self, number: Annotated[int, Field(ge=1, le=10)], game: Game) -> str:
        """Guess the hidden number; the answer says whether it is lower, higher or found."""
        if game.is_found:
            return "The number has been found already."
        game.guesses += 1
        if number == game.hidden_number:
            game.is_found = True
            return f"{number} is the hidden number."
        return f"The hidden number is {'lower' if game.hidden_number < number else 'higher'} than {number}."

    async def verify(self, body: VerifyRequest, game: Game) -> BaseVerifyResponse:
        """Reward the rollout with 1 if the number was found within the row's number of guesses, else with 0."""
        reward = float(game.is_found and game.guesses <= body.max_guesses)
        why = f"the number was {'' if game.is_found else 'not '}found in {game.guesses} of {body.max_guesses} guesses"
        return BaseVerifyResponse.grade(body, reward=reward, why=why)


if __name__ == "__main__":
    MyEnvironmentServer.run_webserver()
