"""Give a reward of 1 only where the session was seeded."""

import asyncio

from nemo_gym import (
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SessionState,
    SimpleResourcesServer,
    tool,
)


class Seen(SessionState):
    number: int = -1


class SeedRequest(BaseSeedSessionRequest):
    number: int


class VerifyRequest(BaseVerifyRequest):
    number: int


class RememberingServer(SimpleResourcesServer):
    async def seed_session(self, body: SeedRequest, seen: Seen) -> None:
        seen.number = body.number

    @tool
    async def recall(self, seen: Seen) -> str:
        """Return the number."""
        return str(seen.number)

    async def verify(self, body: VerifyRequest, seen: Seen) -> BaseVerifyResponse:
        await asyncio.sleep(0.2)
        return BaseVerifyResponse.grade(body, reward=float(seen.number == body.number))
