"""Book what the user wants: the request lacks one detail that only the user knows, and that has to be asked for."""

import inspect
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    Tool,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    tool,
)
from resources_servers.proactive_asking.bookings import KINDS, Book, Booking
from resources_servers.proactive_asking.grading import Course, course_of


class ProactiveAskingConfig(BaseResourcesServerConfig):
    """What an attempt earns that is not perfect. Only the conversation counts, so stored ones can be graded again."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    guess_reward: float = Field(default=0.0, ge=0, lt=1)
    """For a booking that is right, but was made before the user had been asked for the missing detail."""
    needless_question_penalty: float = Field(default=0.1, ge=0, le=1)
    """What each question for something else costs a right booking; never more than all."""


class MissingDetail(BaseModel):
    """What the request does not tell."""

    name: str
    asked_with: list[Annotated[str, Field(pattern=r"\S")]] = Field(min_length=1)
    """Words or phrases of which a question for it has at least one."""


class ExpectedBooking(BaseModel):
    """The one booking that the user wants."""

    tool: Literal["book_table", "book_room", "book_flight", "order_courier", "make_appointment"]
    arguments: dict[str, Any]

    @model_validator(mode="after")
    def _can_be_made(self) -> "ExpectedBooking":
        assert self.booking
        return self

    @property
    def booking(self) -> Booking:
        return KINDS[self.tool].model_validate(self.arguments)


class Task(BaseModel):
    """The part of a row that decides the reward."""

    model_config = ConfigDict(extra="allow")

    expected_booking: ExpectedBooking
    missing_detail: MissingDetail | None = None
    """None where the request is complete, so that there is nothing to ask."""


class SeedRequest(Task, BaseSeedSessionRequest):
    """The row, before the model has seen it."""


class VerifyRequest(Task, BaseVerifyRequest):
    """The row, and the conversation."""


class Desk(SessionState):
    """This rollout's book."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    book: Book = Field(default_factory=Book)


class ProactiveAskingServer(SimpleResourcesServer):
    """Offers a tool for each kind of booking; the rest is the conversation's."""

    config: ProactiveAskingConfig

    async def seed_session(self, body: SeedRequest, desk: Desk) -> None:
        """Begin with an empty book; a row that cannot be graded is refused before a model has worked on it."""
        desk.book = Book()

    def tools(self) -> list[Tool]:
        """One for each kind of booking, and those that go with all of them."""
        return [*self._booking_tools, *super().tools()]

    @tool
    async def list_bookings(self, desk: Desk) -> list[dict[str, Any]]:
        """List what is booked."""
        return desk.book.listed()

    @tool
    async def cancel_booking(self, booking_id: int, desk: Desk) -> dict[str, Any]:
        """Cancel a booking."""
        return desk.book.cancel(booking_id)

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        """Reward the right booking, made with what the user was asked for."""
        course = course_of(body.response, body.missing_detail.asked_with if body.missing_detail else [])
        entries, expected = course.book.entries, body.expected_booking.booking
        is_booked = len(entries) == 1 and entries[0].is_like(expected)
        return BaseVerifyResponse.grade(
            body,
            reward=self._reward(course, is_needed=body.missing_detail is not None) if is_booked else 0.0,
            is_booked=is_booked,
            was_asked=course.was_asked,
            needless_questions=course.needless_questions,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Pass rates, over all and for each domain."""
        return {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, "domain")}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Every mean but that of the rows' numbers."""
        return {key: value for key, value in super().get_key_metrics(agent_metrics).items() if key != "mean/id"}

    def _reward(self, course: Course, *, is_needed: bool) -> float:
        if is_needed and not course.was_asked:
            return self.config.guess_reward
        return max(0.0, 1.0 - self.config.needless_question_penalty * course.needless_questions)

    @cached_property
    def _booking_tools(self) -> list[Tool]:
        return [_tool(name, kind) for name, kind in KINDS.items()]


def _tool(name: str, kind: type[Booking]) -> Tool:
    """The tool that makes bookings of this kind in the book of the rollout that calls it."""

    async def book(desk: Desk, **arguments: Any) -> dict[str, Any]:
        return desk.book.add(kind.model_validate(arguments))

    arguments = [
        inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[info.annotation, info])
        for field, info in kind.model_fields.items()
    ]
    desk = inspect.Parameter("desk", inspect.Parameter.KEYWORD_ONLY, annotation=Desk)
    book.__signature__ = inspect.Signature([desk, *arguments])  # type: ignore[attr-defined]
    return Tool.of(book, name=name, description=inspect.getdoc(kind))


if __name__ == "__main__":
    ProactiveAskingServer.run_webserver()
