"""Grade the calendar at the end of a conversation: all events, all constraints met, no overlaps."""

from typing import ClassVar

from pydantic import BaseModel, field_validator

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)
from resources_servers.calendar.grading import booked_in, keeps_all
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

    async def verify(self, body: CalendarVerifyRequest) -> float:
        """Return 1 if nothing is expected or the last message lists a calendar that meets every requirement."""
        expected = list(body.exp_cal_state.values())
        if not expected:
            return 1.0
        booked = booked_in(body.response.last_text)
        return float(booked is not None and keeps_all(booked, expected))


if __name__ == "__main__":
    CalendarServer.run_webserver()
