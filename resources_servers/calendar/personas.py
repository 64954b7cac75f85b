"""The personas who talk to the assistant and the agendas of their days, parsed from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nemo_gym import DataError

PERSONAS_FILE = Path(__file__).parent / "prompts" / "personas.json"

Turn = Literal["add", "resize", "move", "free", "cancel", "chat"]


class Persona(BaseModel):
    """One user with their phrases, whose placeholders are `{event}`, `{minutes}` and `{when}`."""

    model_config = ConfigDict(extra="forbid")

    name: str
    greets: str
    adds: str
    resizes: str
    moves: str
    frees: str
    cancels: str
    chats: list[str] = Field(min_length=1)
    events: list[str] = Field(min_length=1)

    @field_validator("adds", "resizes", "moves", "frees", "cancels")
    @classmethod
    def _can_be_filled(cls, template: str) -> str:
        try:
            template.format(event="", minutes=0, when="")
        except (LookupError, ValueError) as error:
            raise ValueError("the only placeholders are {event}, {minutes} and {when}") from error
        return template


class Agenda(BaseModel):
    """One day: its start and end times, and the user's request in each turn."""

    model_config = ConfigDict(extra="forbid")

    name: str
    min_time: str
    max_time: str
    turns: list[Turn] = Field(min_length=1)


class Cast(BaseModel):
    """All personas and agendas of a file."""

    model_config = ConfigDict(extra="forbid")

    personas: list[Persona] = Field(min_length=1)
    agendas: list[Agenda] = Field(min_length=1)


def read_cast(path: Path = PERSONAS_FILE) -> Cast:
    """Parse the personas and agendas of a file. Raises `DataError` with the file and the wrong key."""
    try:
        return Cast.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise DataError(f"{path}: {where or 'the file'}: {problem['msg']}.") from error
