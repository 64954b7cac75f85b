"""Ask a judge model for its verdict on an answer."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, field_validator, model_validator

from nemo_gym import paths
from nemo_gym.config.settings import ModelServerRef
from nemo_gym.errors import ConfigError
from nemo_gym.grading.judge_calls import call_judge
from nemo_gym.grading.text import strip_reasoning
from nemo_gym.http.client import ServerClient
from nemo_gym.schemas.items import EasyInputMessage
from nemo_gym.schemas.responses import RESPONSES_PATH, Response, ResponseCreateParams

MARKS = "[*_`\"'.:!]"
DRESS, DRESS_IN_LINE = rf"(?:\s|{MARKS})*", rf"(?:[^\S\n]|{MARKS})*"
"""What may stand round a verdict; with line ends in it, the search of all lines would take the square of the text."""

Outcome = Literal["agreed", "unparsable", "tied", "order_decides"]


def _in_folder_first(path: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder")
    return folder / path if folder and (folder / path).is_file() else path


PromptFile = Annotated[Path, AfterValidator(_in_folder_first)]
"""A text file in the server's own folder, or else in one of the search roots."""


class JudgeConfig(BaseModel):
    """Who judges, what it is asked, and which verdicts there are."""

    model_server: ModelServerRef
    prompt: PromptFile
    """`{name}` stands for a field, doubled braces for braces."""
    system_message: str | None = None
    labels: list[str] = Field(min_length=1)
    """The verdicts, in any case. The answer's own is the last one that has a line to itself, else the one that the
    answer begins with, else the last one."""
    max_concurrency: int | None = Field(default=64, ge=1)
    """How many calls may be under way at once; null for any number."""
    responses_create_params: ResponseCreateParams = ResponseCreateParams(input=[])
    """How the judge samples; `input` is replaced."""
    votes: int = Field(default=1, ge=1)
    """How often it is asked the same; more than half of the readable verdicts decide."""
    swap: tuple[str, str] | None = None
    """Two fields. A judge that favours a position gives itself away when their values change places: the first label
    is a verdict only if it is given both ways."""

    @field_validator("prompt")
    @classmethod
    def _is_there(cls, path: Path, info: ValidationInfo) -> Path:
        # Told as the server starts, with its line, rather than by every answer that is to be judged.
        context = info.context or {}
        if context.get("checks_files") and paths.find(path, Path.is_file) is None:
            places = ", ".join(dict.fromkeys(map(str, (context["folder"], *paths.search_roots()))))
            raise ValueError(f"there is no file '{path}' in {places}")
        return path

    @model_validator(mode="after")
    def _labels_differ(self) -> JudgeConfig:
        if len({label.casefold() for label in self.labels}) < len(self.labels) or not all(self.labels):
            raise ValueError(f"labels {self.labels} are not all different texts")
        return self


@dataclass(frozen=True)
class JudgeCall:
    """One question to the judge, and what came of it."""

    responses_create_params: ResponseCreateParams
    response: Response
    label: str | None
    """None where the answer names none of the labels."""

    @property
    def text(self) -> str:
        """What the judge said, its reasoning left out."""
        return strip_reasoning(self.response.last_text)

    def record(self) -> dict[str, Any]:
        """The call as JSON, for the rollout's record."""
        return {
            "responses_create_params": self.responses_create_params.model_dump(mode="json", exclude_unset=True),
            "response": self.response.model_dump(mode="json"),
            "verdict_label": self.label,
        }


@dataclass(frozen=True)
class Verdict:
    """What the judge found.

    `label` is None unless it was agreed on: no answer could be read (`unparsable`), no label has more than half of
    the votes (`tied`), or the swapped question led to something else than the first label (`order_decides`).
    """

    label: str | None
    outcome: Outcome
    calls: tuple[JudgeCall, ...]
    was_swapped: bool = False
    """Whether the first label was given, and the question asked again with its fields swapped."""

    @property
    def text(self) -> str:
        """Everything that the judge said."""
        return "\n\n".join(call.text for call in self.calls)


class Judge:
    """Asks a model server, through a prompt, and reads its verdicts."""

    def __init__(self, config: JudgeConfig, client: ServerClient) -> None:
        self._config = config
        self._client = client
        self._template = read_prompt(config.prompt)
        self._gate = asyncio.Semaphore(config.max_concurrency or 2**31)
        self._labels = _LabelReader(config.labels)

    async def ask(self, **fields: str) -> Verdict:
        """The verdict on these fields of the prompt. Raises `JudgeFailed` where the judge gives no answer at all."""
        verdict = await self._vote(fields)
        if self._config.swap is None or verdict.label != self._config.labels[0]:
            return verdict
        one, other = self._config.swap
        swapped = await self._vote({**fields, one: fields[other], other: fields[one]})
        calls = verdict.calls + swapped.calls
        if swapped.label == verdict.label:
            return Verdict(verdict.label, "agreed", calls, was_swapped=True)
        return Verdict(None, "order_decides" if swapped.label else swapped.outcome, calls, was_swapped=True)

    async def _vote(self, fields: dict[str, str]) -> Verdict:
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._call(fields)) for _ in range(self._config.votes)]
        except ExceptionGroup as failures:
            # One reason is enough, and it is the kind of error that callers know.
            raise failures.exceptions[0] from failures
        calls = tuple(task.result() for task in asked)
        votes = Counter(call.label for call in calls if call.label is not None)
        if not votes:
            return Verdict(None, "unparsable", calls)
        label, count = votes.most_common(1)[0]
        return Verdict(label, "agreed", calls) if 2 * count > votes.total() else Verdict(None, "tied", calls)

    async def _call(self, fields: dict[str, str]) -> JudgeCall:
        params = self._params(fields)
        async with self._gate:
            response = await self._answer(params)
        return JudgeCall(params, response, self._labels.find(strip_reasoning(response.last_text)))

    def _params(self, fields: dict[str, str]) -> ResponseCreateParams:
        try:
            question = self._template.format_map(fields)
        except (LookupError, AttributeError, ValueError, TypeError) as error:
            known = ", ".join(fields)
            raise ConfigError(
                f"{self._config.prompt}: the prompt asks for more than its fields ({error!r}), which are: {known}."
            ) from error
        messages = [EasyInputMessage(role="user", content=question)]
        if self._config.system_message:
            messages.insert(0, EasyInputMessage(role="system", content=self._config.system_message))
        return self._config.responses_create_params.model_copy(update={"input": messages})

    async def _answer(self, params: ResponseCreateParams) -> Response:
        server = self._config.model_server.name
        return await call_judge(
            self._client, server_name=server, url_path=RESPONSES_PATH, json=params, response_model=Response
        )


class _LabelReader:
    """Finds the label that an answer settles on."""

    def __init__(self, labels: list[str]) -> None:
        self._by_folded = {label.casefold(): label for label in labels}
        # A label within another word, or within a longer label, is not that label.
        by_length = sorted(labels, key=len, reverse=True)
        label = "|".join(rf"{_edge(each[0])}{re.escape(each)}{_edge(each[-1])}" for each in by_length)
        self._alone = re.compile(rf"^{DRESS_IN_LINE}({label}){DRESS_IN_LINE}$", re.IGNORECASE | re.MULTILINE)
        self._first = re.compile(rf"\A{DRESS}({label})", re.IGNORECASE)
        self._any = re.compile(f"({label})", re.IGNORECASE)

    def find(self, text: str) -> str | None:
        """The label, as it is written in the configuration."""
        found = self._alone.findall(text) or self._first.findall(text) or self._any.findall(text)
        return self._by_folded.get(found[-1].casefold()) if found else None


def read_prompt(path: Path) -> str:
    """The prompt in a file, looked for in the search roots; `ConfigError` says what is wrong with it."""
    found = paths.find(path, Path.is_file)
    if found is None:
        places = ", ".join(str(root) for root in paths.search_roots())
        raise ConfigError(f"a prompt: there is no file '{path}' in {places}.")
    template = found.read_text("utf-8-sig")
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError(f"{found}: {error}: a brace that stands for itself is written twice.") from error
    if not all(name.isidentifier() for name in names):
        raise ConfigError(f"{found}: {names} are not all names; a brace that stands for itself is written twice.")
    return template


def _edge(character: str) -> str:
    """Where a label begins or ends with a letter, no other may stand beside it."""
    return r"\b" if character.isalnum() or character == "_" else ""
