"""Move a counter from its initial value to the requested one. The counter lasts for one rollout."""

from nemo_gym import (
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SessionState,
    SimpleResourcesServer,
    tool,
)


class Counter(SessionState):
    """The state of a rollout: its counter."""

    count: int = 0


class SeedRequest(BaseSeedSessionRequest):
    """The part of a row that initializes the session."""

    initial_count: int = 0


class VerifyRequest(BaseVerifyRequest):
    """The part of a row that decides the reward."""

    expected_count: int


class CounterServer(SimpleResourcesServer):
    """A server with one counter for each rollout."""

    async def seed_session(self, body: SeedRequest, counter: Counter) -> None:
        """Set the counter to its initial value."""
        counter.count = body.initial_count

    @tool
    async def increment_counter(self, count: int, counter: Counter) -> dict[str, bool]:
        """Add a number to the counter."""
        counter.count += count
        return {"success": True}

    @tool
    async def get_counter_value(self, counter: Counter) -> dict[str, int]:
        """Read the counter."""
        return {"count": counter.count}

    async def verify(self, body: VerifyRequest, counter: Counter) -> BaseVerifyResponse:
        """Reward the rollout with 1 if the counter has the expected final value, and with 0 otherwise."""
        reward = float(counter.count == body.expected_count)
        why = f"the counter is at {counter.count}, and {body.expected_count} is expected"
        return BaseVerifyResponse.grade(body, reward=reward, why=why)


if __name__ == "__main__":
    CounterServer.run_webserver()
