"""The requests that a collection answers: one JSON object per line, on its Unix socket."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from nemo_gym.jsonl import JsonObject
from nemo_gym.rollouts.control.control import Control

Verb = Literal["status", "pause", "resume", "concurrency", "cancel", "requeue", "drain", "stop"]
VERBS: tuple[str, ...] = get_args(Verb)


class Request(BaseModel):
    """A control request: a verb with its arguments."""

    model_config = ConfigDict(extra="forbid")

    verb: Verb
    task: NonNegativeInt | None = None
    """The task to cancel or to run again. If it is None, `requeue` runs all rollouts without a score again."""
    repeat: NonNegativeInt | None = None
    """The repeat of `task` to cancel or to run again. None means all repeats of the task."""
    wanted: int | None = Field(default=None, ge=1, le=1_000_000)
    """The new concurrency; None to adapt it to the measured throughput."""

    @model_validator(mode="after")
    def _has_its_arguments(self) -> Request:
        if self.verb == "cancel" and self.task is None:
            raise ValueError("cancel needs a task. Set `task` to the task's index")
        if self.repeat is not None and self.task is None:
            raise ValueError("a repeat needs a task. Set `task` to the task's index")
        return self

    @property
    def arguments(self) -> JsonObject:
        """The arguments that are not None. For `concurrency`, `wanted` is a number or `auto`."""
        given = self.model_dump(exclude={"verb"}, exclude_none=True)
        return {"wanted": self.wanted or "auto"} if self.verb == "concurrency" else given


def carry_out(request: Request, control: Control) -> JsonObject:
    """Carry out a request and return the answer. Raise `Refused` if the collection cannot carry it out now."""
    match request.verb:
        case "status":
            return control.status()
        case "pause":
            return control.pause()
        case "resume":
            return control.resume()
        case "concurrency":
            return control.set_concurrency(request.wanted)
        case "cancel":
            assert request.task is not None  # The validator rejects `cancel` without a task.
            return control.cancel(request.task, request.repeat)
        case "requeue":
            return control.requeue(request.task, request.repeat)
        case "drain":
            return control.drain()
        case "stop":
            return control.stop()
