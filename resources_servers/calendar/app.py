"""Grade the calendar that a conversation has led to: every event there, every constraint kept, no two at once."""

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
    """Only the last message counts, so that stored rollouts can be graded again."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class Task(BaseModel):
    """The part of a row that decides the reward."""

    exp_cal_state: dict[str, Requirement]
    """What the calendar must hold at the end, by the events' ids."""

    @field_validator("exp_cal_state")
    @classmethod
    def _no_event_is_there_twice(cls, value: dict[str, Requirement]) -> dict[str, Requirement]:
        keys = [requirement.key for requirement in value.values()]
        if len(set(keys)) < len(keys):
            raise ValueError(f"two events have one event_id: {', '.join(keys)}")
        return value


class CalendarSeedRequest(Task, BaseSeedSessionRequest):
    """The row, before the model has seen it."""


class CalendarVerifyRequest(Task, BaseVerifyRequest):
    """The row, and what the model answered."""


class CalendarServer(SimpleResourcesServer):
    """The model keeps the calendar by writing it out; there are no tools."""

    config: CalendarConfig

    async def seed_session(self, body: CalendarSeedRequest) -> None:
        """Refuse a row that no calendar can be held against, before a model has worked on it."""

    async def verify(self, body: CalendarVerifyRequest) -> float:
        """1 where nothing was expected, or where the last message lists a calendar that keeps every requirement."""
        expected = list(body.exp_cal_state.values())
        if not expected:
            return 1.0
        booked = booked_in(body.response.last_text)
        return float(booked is not None and keeps_all(booked, expected))


if __name__ == "__main__":
    CalendarServer.run_webserver()
