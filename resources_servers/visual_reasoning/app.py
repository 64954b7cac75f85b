"""Answer questions about pictures of shapes, dials, charts, tables, mazes and small text. A tool enlarges parts."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI
from pydantic import ConfigDict, Field

from nemo_gym import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    DataError,
    InvalidTask,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseInputImage,
    NeMoGymResponseInputText,
    ReverifyMode,
    SessionState,
    SimpleResourcesServer,
    ToolError,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    tool,
)
from nemo_gym.grading import AnswerText
from resources_servers.visual_reasoning.answers import Key, graded
from resources_servers.visual_reasoning.drawing import data_url, opened, pillow
from resources_servers.visual_reasoning.tasks import Grader
from resources_servers.visual_reasoning.zooming import Part, enlarged

ANSWER_KEY = "extracted_answer"


class VisualReasoningConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class SeedRequest(BaseSeedSessionRequest):
    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class VerifyRequest(BaseVerifyRequest):
    """A `verify()` request with the row and the model's response."""

    model_config = ConfigDict(extra="allow")

    question: str
    """The question without the instruction on the answer's form. A unit that it names is accepted after a number."""
    grader: Grader
    """The type of comparison between the final and the expected answer."""
    expected_answer: AnswerText = Field(pattern=r"\S")
    """The right answer, in the form that the grader reads, such as `9:05` or `17, 203`."""
    tolerance: AnswerText | None = Field(default=None, pattern=r"^\d+(\.\d+)?$")
    """For `number` and `time`, the largest allowed error of an answer. The error of a time is in minutes."""
    box: tuple[int, int, int, int] | None = None
    """For `point`, the object's box in pixels: left, top, right, bottom. Every point in the box is a right answer."""
    reach: int | None = Field(default=None, gt=0)
    """For `point`, the distance from the box, in pixels, at which the reward is 0."""


class Pictures(SessionState):
    """The pictures of the row, as they were sent to the model."""

    urls: list[str] = Field(default_factory=list)


class VisualReasoningServer(SimpleResourcesServer):
    """A server that compares the final answer with the expected one. Its tool enlarges parts of the pictures."""

    config: VisualReasoningConfig
    KEY_METRICS = (
        "mean/input_tokens",
        "mean/output_tokens",
        "pass@1[avg-of-{k}]/accuracy",
        "pass@1[avg-of-{k}]/no_answer",
        "pass@{k}/accuracy",
        "majority@{k}/accuracy",
        "{subset}/pass@1[avg-of-{k}]/accuracy",
    )

    def setup_webserver(self) -> FastAPI:
        """Return the app. Raises `DataError` if Pillow is not installed."""
        pillow("Image")
        return super().setup_webserver()

    async def seed_session(self, body: SeedRequest, pictures: Pictures) -> None:
        """Reject a row with an unreadable picture before the model spends any time on it."""
        pictures.urls = _pictures_of(body.responses_create_params)
        await asyncio.to_thread(self._check_pictures, pictures.urls)

    @tool
    def zoom(
        self,
        *,
        x: Annotated[int, Field(description="Left edge of the part, in pixels of the whole picture")],
        y: Annotated[int, Field(description="Top edge of the part")],
        w: Annotated[int, Field(description="Width of the part")],
        h: Annotated[int, Field(description="Height of the part")],
        pictures: Pictures,
        picture: Annotated[int, Field(description="Which picture, from 1 on")] = 1,
    ) -> list[NeMoGymResponseInputText | NeMoGymResponseInputImage]:
        """Show a part of the picture enlarged, up to 8 times and at most 768 pixels long."""
        if not 1 <= picture <= len(pictures.urls):
            raise ToolError(f"picture must be from 1 to {len(pictures.urls)}, found {picture}.")
        png, factor = enlarged(opened(pictures.urls[picture - 1]), Part(x, y, w, h))
        title = f"Pixels {x} to {x + w} from the left and {y} to {y + h} from the top, {factor} times as large."
        return [NeMoGymResponseInputText(text=title), NeMoGymResponseInputImage(image_url=data_url(png))]

    def _check_pictures(self, urls: list[str]) -> None:
        for number, url in enumerate(urls, start=1):
            try:
                opened(url)
            except DataError:
                raise
            except ValueError as error:
                raise InvalidTask(
                    f"{self.config.name}: picture {number} of the row cannot be read: {error}. Fix the row.",
                    server=self.config.name,
                ) from error

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        key = Key(body.question, body.expected_answer, body.tolerance, body.box, body.reach)
        self._check(body.grader, key)
        grade = graded(body.response.last_text, body.grader, key)
        return BaseVerifyResponse.grade(body, reward=grade.reward, extracted_answer=grade.answer)

    def _check(self, grader: Grader, key: Key) -> None:
        """Raise `InvalidTask` if the row's own expected answer would not earn the full reward."""
        problem = None
        if grader == "point" and (key.box is None or key.reach is None):
            problem = "the grader 'point' needs 'box' and 'reach'"
        elif graded(key.expected, grader, key).reward != 1.0:
            problem = f"expected_answer: '{key.expected}' is not an answer for the grader '{grader}'"
        if problem:
            raise InvalidTask(f"{self.config.name}: {problem}. Fix the row.", server=self.config.name)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the mean reward as accuracy, overall and per `subset`."""
        return {
            **compute_pass_majority_metrics(tasks, answer_key=ANSWER_KEY).metrics,
            **compute_subset_metrics(tasks, "subset", answer_key=ANSWER_KEY),
        }


def _pictures_of(params: NeMoGymResponseCreateParamsNonStreaming) -> list[str]:
    contents = (getattr(item, "content", None) for item in params.input_items)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return [part.image_url or "" for part in parts if isinstance(part, NeMoGymResponseInputImage)]


if __name__ == "__main__":
    VisualReasoningServer.run_webserver()
