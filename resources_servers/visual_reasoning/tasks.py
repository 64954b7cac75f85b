"""A task about pictures: its question, its pictures and its row."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

from resources_servers.visual_reasoning.drawing import PALETTE, WHITE, Canvas, Colour

Grader = Literal["number", "time", "text", "moves", "point"]

FORMS: dict[Grader, str] = {
    "number": "End with a line of the form 'Answer: …' that holds nothing but the number.",
    "time": "End with a line of the form 'Answer: h:mm', such as 'Answer: 9:05'.",
    "text": "End with a line of the form 'Answer: …' that holds nothing but the answer.",
    "moves": "End with a line of the form 'Answer: …' that holds nothing but the letters, such as 'Answer: UURD'.",
    "point": "End with a line of the form 'Answer: x, y' in whole pixels, such as 'Answer: 17, 203'. x counts from "
    "the left edge of the picture, y from the top.",
}


class Picture(Protocol):
    """The content of a picture, as a frozen dataclass of plain values."""

    WIDTH: ClassVar[int]
    HEIGHT: ClassVar[int]
    FINENESS: ClassVar[int]
    PALETTE: ClassVar[int]

    @property
    def background(self) -> Colour: ...

    def draw(self, canvas: Canvas) -> None: ...


@dataclass(frozen=True)
class Sheet:
    """A base class for pictures, with default drawing settings."""

    FINENESS: ClassVar[int] = 3
    PALETTE: ClassVar[int] = PALETTE

    @property
    def background(self) -> Colour:
        return WHITE


def png_file(picture: Picture) -> bytes:
    canvas = Canvas(picture.WIDTH, picture.HEIGHT, picture.background, fineness=picture.FINENESS)
    picture.draw(canvas)
    return canvas.png(picture.PALETTE)


@dataclass(frozen=True)
class Task:
    """A question about pictures, and the fields for its grading."""

    subset: str
    question: str
    pictures: tuple[Picture, ...]
    grader: Grader
    expected_answer: str
    tolerance: str | None = None
    """The largest allowed error of an answer. The error of a time is in minutes."""
    box: tuple[int, int, int, int] | None = None
    """The box of the object to point at or of the card to read, in pixels: left, top, right, bottom."""
    reach: int | None = None
    """The distance from the box, in pixels, at which a point earns nothing."""

    @property
    def prompt(self) -> str:
        return f"{self.question}\n\n{FORMS[self.grader]}"

    @property
    def key(self) -> list[Any]:
        """The question and the content of the pictures, which identify the task."""
        return [self.question, [[type(each).__name__, asdict(each)] for each in self.pictures]]  # type: ignore[call-overload]

    @property
    def grading(self) -> dict[str, Any]:
        """The row's fields, except the prompt."""
        fields = {
            "subset": self.subset,
            "question": self.question,
            "grader": self.grader,
            "expected_answer": self.expected_answer,
            "tolerance": self.tolerance,
            "box": self.box,
            "reach": self.reach,
        }
        return {name: value for name, value in fields.items() if value is not None}


Maker = Callable[[random.Random], Task]
