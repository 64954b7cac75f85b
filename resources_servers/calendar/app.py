"""Grade the calendar at the end of a conversation: all events, all constraints met, no overlaps."""

from typing import ClassVar

from pydantic import BaseModel, field_validator

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from resources_servers.calendar.grading import booked_in, first_problem
from resources_servers.calendar.requirements import Requirement


class CalendarConfig(BaseResourcesServerConfig):
    """The server's settings. Stored rollouts can be graded again, because grading needs only the last message."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class Task(BaseModel):
    """The part of a row that decides the reward."""

    exp_cal_state: dict[str, Requirement]
    """The events that the final calendar must contain, by id."""

    @field_validator("exp_cal_state")
    @classmethod
    def _has_unique_ids(cls, value: dict[str, Requirement]) -> dict[str, Requirement]:
        keys = [requirement.key for requirement in value.values()]
        if len(set(keys)) < len(keys):
            raise ValueError(f"two events have the same event_id: {', '.join(keys)}")
        return value


class CalendarSeedRequest(Task, BaseSeedSessionRequest):
    """The row that starts a session."""


class CalendarVerifyRequest(Task, BaseVerifyRequest):
    """The row and the model's response."""


class CalendarServer(SimpleResourcesServer):
    """A verifier that reads the calendar from the model's text. It offers no tools."""

    config: CalendarConfig

    async def seed_session(self, body: CalendarSeedRequest) -> None:
        """Validate the row before the model spends any time on it."""

    async def verify(self, body: CalendarVerifyRequest) -> BaseVerifyResponse:
        """Reward a last message whose calendar meets every requirement, or any message if nothing is expected."""
        expected = list(body.exp_cal_state.values())
        problem = first_problem(booked_in(body.response.last_text), expected) if expected else None
        why = problem or ("the calendar meets every requirement" if expected else "no event is expected")
        return BaseVerifyResponse.grade(body, reward=float(problem is None), why=why)


if __name__ == "__main__":
    CalendarServer.run_webserver()
