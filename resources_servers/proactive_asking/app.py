"""Make the booking that a user requests. First ask for the one missing detail, which only the user knows."""

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
    """The server's configuration: the rewards for bookings after a guess or after needless questions."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    guess_reward: float = Field(default=0.0, ge=0, lt=1)
    """The reward of a correct booking made without asking for the missing detail first."""
    needless_question_penalty: float = Field(default=0.1, ge=0, le=1)
    """The deduction for each needless question, unless the booking was a guess. The reward is at least 0."""


class MissingDetail(BaseModel):
    """The detail that the request lacks."""

    name: str
    asked_with: list[Annotated[str, Field(pattern=r"\S")]] = Field(min_length=1)
    """Words or phrases. A question that contains one of them counts as a question for the detail."""


class ExpectedBooking(BaseModel):
    """The only booking that the user wants."""

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
    """The detail to ask for. None if the request is complete."""


class SeedRequest(Task, BaseSeedSessionRequest):
    """The row that starts a session."""


class VerifyRequest(Task, BaseVerifyRequest):
    """A `verify()` request with the row and the conversation."""


class Desk(SessionState):
    """The bookings of this rollout."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    book: Book = Field(default_factory=Book)


class ProactiveAskingServer(SimpleResourcesServer):
    """A server that offers a tool for each kind of booking and grades the conversation."""

    config: ProactiveAskingConfig
    KEY_METRICS = (
        "mean/reward",
        "mean/is_booked",
        "mean/was_asked",
        "mean/needless_questions",
        "mean/input_tokens",
        "mean/output_tokens",
        "mean/total_tokens",
    )

    async def seed_session(self, body: SeedRequest, desk: Desk) -> None:
        """Validate the row before the model spends any time on it, and start without bookings."""
        desk.book = Book()

    def tools(self) -> list[Tool]:
        """Return one tool for each kind of booking, and the tools to list and cancel bookings."""
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
        """Reward the correct booking. It earns `guess_reward` if the user was not asked for a missing detail."""
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
        """Return pass rates overall and for each domain."""
        return {**compute_pass_majority_metrics(tasks).metrics, **compute_subset_metrics(tasks, "domain")}

    def _reward(self, course: Course, *, is_needed: bool) -> float:
        if is_needed and not course.was_asked:
            return self.config.guess_reward
        return max(0.0, 1.0 - self.config.needless_question_penalty * course.needless_questions)

    @cached_property
    def _booking_tools(self) -> list[Tool]:
        return [_tool(name, kind) for name, kind in KINDS.items()]


def _tool(name: str, kind: type[Booking]) -> Tool:
    """Return the tool that makes bookings of this kind and adds them to the rollout's bookings."""

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
