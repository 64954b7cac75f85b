"""An environment with points, a policy that scores them, and agents for both."""

import asyncio

from fastapi import Request

from nemo_gym import (
    SESSION_ID_KEY,
    BaseResponsesAPIModelConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    ModelFailed,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SessionState,
    SimpleResourcesServer,
    SimpleResponsesAPIModel,
    current_rollout_id,
    tool,
)
from nemo_gym.testing import FakeModel, call, make_server, reply
from responses_api_agents.simple_agent.app import SimpleAgent

ARENA = {"type": "resources_servers", "name": "arena"}


class Score(SessionState):
    points: int = 0


class SeedRequest(BaseSeedSessionRequest):
    fails_to_begin: bool = False


class VerifyRequest(BaseVerifyRequest):
    fails_to_grade: bool = False


class Arena(SimpleResourcesServer):
    cookies_seen: list[set[str]] = []  # noqa: RUF012
    rollouts_seen: list[str | None] = []  # noqa: RUF012
    lingered: int = 0

    async def seed_session(self, request: Request, body: SeedRequest, score: Score) -> None:
        self.cookies_seen.append(set(request.cookies))
        self.rollouts_seen.append(current_rollout_id())
        if body.fails_to_begin:
            raise RuntimeError("no board left")

    @tool
    async def score(self, points: int, score: Score, request: Request) -> int:
        """Score points."""
        self.cookies_seen.append(set(request.cookies))
        self.rollouts_seen.append(current_rollout_id())
        score.points += points
        return score.points

    @tool
    async def linger(self) -> str:
        """Take a while."""
        await asyncio.sleep(0.05)
        self.lingered += 1
        return "Here I am."

    @tool
    async def explode(self, score: Score) -> str:
        """Be buggy."""
        raise ZeroDivisionError("of nothing")

    async def verify(self, request: Request, body: VerifyRequest, score: Score) -> float:
        self.cookies_seen.append(set(request.cookies))
        self.rollouts_seen.append(current_rollout_id())
        if body.fails_to_grade:
            raise RuntimeError("no ruler")
        return float(score.points)


class Policy(SimpleResponsesAPIModel):
    """A model server with sessions. It scores once, then answers, and fails for the user `nobody`."""

    config: BaseResponsesAPIModelConfig
    cookies_seen: list[set[str]] = []  # noqa: RUF012
    sessions_seen: list[str] = []  # noqa: RUF012

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        self.cookies_seen.append(set(request.cookies))
        self.sessions_seen.append(request.session[SESSION_ID_KEY])
        if body.user == "nobody":
            raise ModelFailed("the endpoint is gone", server="policy_model")
        return reply(call("score", points=1)) if len(body.input) == 0 else reply("Done.")

    async def chat_completions(self, body: NeMoGymResponseCreateParamsNonStreaming) -> None:
        raise NotImplementedError


def agent_on(arena: Arena, *replies: object, cls: type[SimpleAgent] = SimpleAgent, **settings: object) -> SimpleAgent:
    model = FakeModel(replies or [call("score", points=1), "Done."])
    return make_server(cls, model=model, servers=[arena], **{"resources_server": ARENA, "name": "agent", **settings})


POLICY = {"type": "responses_api_models", "name": "policy_model"}
