"""The server of `app.py`, but with rewards from the environment's `score_group`, which compares a task's rollouts."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from nemo_gym import BaseVerifyResponse, JudgeFailed, RolloutError
from resources_servers.ors.app import OrsServer, VerifyRequest
from resources_servers.ors.client import Json
from resources_servers.ors.play import Play


class Score(BaseModel):
    reward: Annotated[float, Field(strict=True, allow_inf_nan=False)]
    metadata: Json | None = None


class Scores(BaseModel):
    scores: list[Score]


class OrsGroupServer(OrsServer):
    """A server whose block has `group_verification: {}`. The environment scores all rollouts of a task together."""

    async def verify_group(self, bodies: Sequence[VerifyRequest]) -> Sequence[BaseVerifyResponse]:
        """Return the environment's score of each rollout. Raises `JudgeFailed` if it gives none."""
        play = Play()
        try:
            await play.begin(self.ors, bodies[0].ors, self.config.ping_s)
            given = {"candidates": [{"messages": _messages(body)} for body in bodies]}
            path, limit_s = f"/{self.ors.env}/score_group", self.config.call_timeout_s
            done = await self.ors.stream(path, play.sid, given, within_s=limit_s)
            scores = self.ors.parsed(Scores, done.text).scores
        except RolloutError as error:
            raise JudgeFailed(f"{self.config.name}: score_group: {error}") from error
        finally:
            await play.close()
        if len(scores) != len(bodies):
            found = f"{len(scores)} scores for {len(bodies)} rollouts"
            raise JudgeFailed(f"{self.config.name}: score_group returned {found}")
        return [
            BaseVerifyResponse.grade(body, reward=score.reward, score=score.metadata)
            for body, score in zip(bodies, scores, strict=True)
        ]


def _messages(body: VerifyRequest) -> list[Json]:
    # Send texts only, because most environments compare only the answers, and older servers reject other blocks.
    texts = [(each.role, each.text) for each in body.response.output if each.type == "message" and each.text]
    return [{"role": role, "blocks": [{"type": "text", "text": text}]} for role, text in texts]


if __name__ == "__main__":
    OrsGroupServer.run_webserver()
