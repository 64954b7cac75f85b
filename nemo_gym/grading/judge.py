"""Ask a judge model for its verdict on an answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, model_validator

from nemo_gym import paths
from nemo_gym.calls.client import ServerClient
from nemo_gym.config.settings import ModelServerRef
from nemo_gym.errors import ConfigError, JudgeFailed
from nemo_gym.grading.judge_calls import call_judge
from nemo_gym.grading.judge_labels import LabelReader
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.items import EasyInputMessage
from nemo_gym.schemas.responses import RESPONSES_PATH, Response, ResponseCreateParams
from nemo_gym.text import did_you_mean_or_all, fields_of_template

NONCE = "nonce"
NONCE_DIGITS = 16
SHOWN_REPLY = 200

Outcome = Literal["agreed", "tied", "order_decides"]


def _in_folder_first(path: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder")
    return folder / path if folder and (folder / path).is_file() else path


def _is_there(path: Path, info: ValidationInfo) -> Path:
    # Report a missing file at server start, with its config line, and not only when the judge is asked.
    context = info.context or {}
    if context.get("checks_files") and paths.find(path, Path.is_file) is None:
        places = ", ".join(dict.fromkeys(map(str, (context["folder"], *paths.search_roots()))))
        raise ValueError(f"there is no file '{path}' in {places}")
    return path


PromptFile = Annotated[Path, AfterValidator(_in_folder_first), AfterValidator(_is_there)]
"""The path of a text file, which is looked up first in the server's folder and then in the search roots."""


class JudgeConfig(BaseModel):
    """The configuration of a judge: its model, its prompt and the possible verdicts."""

    model_server: ModelServerRef
    """The model server of the judge, as `{type: responses_api_models, name: …}`."""
    prompt: PromptFile
    """The file of a template in which `{name}` is a field. Write a literal brace twice.

    `{nonce}` is a random-looking code that no field contains. Put fields between lines with this code to separate them
    from the rest of the prompt, which an answer may imitate to deceive the judge."""
    system_message: str | None = None
    """A system message before the prompt."""
    labels: list[str] = Field(min_length=1)
    """The possible verdicts; case is ignored. The verdict of a reply is the label of its last sentence that starts or
    ends with a label. A label does not count if its sentence denies, quotes or reports it, or if a later sentence
    contradicts it."""
    max_concurrency: int | None = Field(default=64, ge=1)
    """The maximum number of concurrent calls; null for no limit."""
    responses_create_params: ResponseCreateParams = ResponseCreateParams(input=[])
    """Sampling parameters of the judge. `input` is replaced with the prompt."""
    votes: int = Field(default=1, ge=1)
    """The number of times to ask the judge. A label wins if it has more than half of the votes that chose a label."""
    swap: tuple[str, str] | None = None
    """Two fields whose values are swapped to detect position bias. If the verdict is the first label, the judge is
    asked again with the fields swapped, and the verdict counts only if it is the same in both orders."""

    @model_validator(mode="after")
    def _swapped_fields_are_in_prompt(self, info: ValidationInfo) -> JudgeConfig:
        fields = _fields_at_start(self.prompt, info)
        for name in self.swap or ():
            if fields is not None and name not in fields:
                hint = did_you_mean_or_all(name, fields, "fields")
                raise ValueError(f"swap: {self.prompt.name} has no field '{name}'.{hint}")
        return self

    @model_validator(mode="after")
    def _labels_differ(self) -> JudgeConfig:
        if len({label.casefold() for label in self.labels}) < len(self.labels) or not all(self.labels):
            raise ValueError(f"labels must be different and not empty: {self.labels}")
        return self


def filled_with(*names: str) -> AfterValidator:
    """Return a validator for a `JudgeConfig` or `PromptFile`: its prompt may only use these fields.

    `names` are the fields that the verifier fills in. If the prompt uses another field, server start and
    `ng env validate` report an error. Use it in an annotation:
    `judge: Annotated[JudgeConfig, filled_with("question", "answer")]`.
    """

    def check(given: JudgeConfig | Path, info: ValidationInfo) -> JudgeConfig | Path:
        prompt = given if isinstance(given, Path) else given.prompt
        for name in _fields_at_start(prompt, info) or ():
            if name not in (*names, NONCE):
                raise ValueError(_unknown_field(prompt, name, names))
        return given

    return AfterValidator(check)


def _fields_at_start(prompt: Path, info: ValidationInfo) -> list[str] | None:
    """Return the fields of a prompt if a server's settings are being checked, or None otherwise.

    Also return None if the prompt file does not exist, because `_is_there` reports that.
    """
    if not (info.context or {}).get("checks_files") or paths.find(prompt, Path.is_file) is None:
        return None
    try:
        return fields_of_template(read_prompt(prompt))
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _unknown_field(prompt: Path, name: str, known: Iterable[str]) -> str:
    return f"{prompt}: the prompt uses the unknown field '{name}'.{did_you_mean_or_all(name, known, 'fields')}"


@dataclass(frozen=True)
class JudgeCall:
    """One request to the judge, with the judge's response."""

    responses_create_params: ResponseCreateParams
    response: Response
    label: str | None
    """The label that the answer decides on, or None if it does not decide on one."""

    @property
    def text(self) -> str:
        """The judge's answer without its reasoning."""
        return self.response.answer_text

    def record(self) -> JsonObject:
        """Return the call as JSON for the rollout's record."""
        return {
            "responses_create_params": self.responses_create_params.model_dump(mode="json", exclude_unset=True),
            "response": self.response.model_dump(mode="json"),
            "verdict_label": self.label,
        }


@dataclass(frozen=True)
class Verdict:
    """The judge's verdict.

    `outcome` is `agreed` if a label has won. It is `tied` if no label has more than half of the votes, and
    `order_decides` if the judge chose another label after the fields were swapped. `label` is None unless the outcome
    is `agreed`.
    """

    label: str | None
    outcome: Outcome
    calls: tuple[JudgeCall, ...]
    was_swapped: bool = False
    """Whether the judge was asked again with the fields swapped, because its first verdict was the first label."""

    @property
    def text(self) -> str:
        """The judge's answers to all calls, separated by empty lines."""
        return "\n\n".join(call.text for call in self.calls)


class Judge:
    """A judge model with a prompt template. Each `ask` fills the template with new values."""

    def __init__(self, config: JudgeConfig, client: ServerClient) -> None:
        self._config = config
        self._client = client
        self._template = read_prompt(config.prompt)
        self._gate = asyncio.Semaphore(config.max_concurrency or 2**31)
        self._labels = LabelReader(config.labels)

    async def ask(self, **fields: str) -> Verdict:
        """Fill the prompt's fields with these values, ask the judge, and return the verdict.

        Raise `JudgeFailed` if the judge does not answer, or if none of its answers decides on a label.
        """
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
            # Raise only the first error, because callers do not handle exception groups.
            raise failures.exceptions[0] from failures
        calls = tuple(task.result() for task in asked)
        votes = Counter(call.label for call in calls if call.label is not None)
        if not votes:
            server, labels = self._config.model_server.name, " and ".join(self._config.labels)
            raise JudgeFailed(
                f"the judge '{server}' did not decide on one of the labels {labels}. The end of its answer: "
                f"{calls[-1].text[-SHOWN_REPLY:]!r}",
                server=server,
            )
        label, count = votes.most_common(1)[0]
        return Verdict(label, "agreed", calls) if 2 * count > votes.total() else Verdict(None, "tied", calls)

    async def _call(self, fields: dict[str, str]) -> JudgeCall:
        params = self._params(fields)
        server = self._config.model_server.name
        async with self._gate:
            response = await call_judge(
                self._client, server_name=server, url_path=RESPONSES_PATH, json=params, response_model=Response
            )
        return JudgeCall(params, response, self._labels.find(response.answer_text))

    def _params(self, fields: dict[str, str]) -> ResponseCreateParams:
        try:
            question = self._template.format_map({NONCE: _nonce_of(fields), **fields})
        except KeyError as error:
            raise ConfigError(_unknown_field(self._config.prompt, error.args[0], fields)) from error
        except (LookupError, AttributeError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._config.prompt}: the prompt cannot be filled ({error!r}). The fields are: {', '.join(fields)}."
            ) from error
        messages = [EasyInputMessage(role="user", content=question)]
        if self._config.system_message:
            messages.insert(0, EasyInputMessage(role="system", content=self._config.system_message))
        return self._config.responses_create_params.model_copy(update={"input": messages})


def _nonce_of(fields: dict[str, str]) -> str:
    """Return a code that no field contains. The same fields always get the same code.

    The code is a hash of all fields, so the author of a field cannot write this hash into the field.
    """
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()[:NONCE_DIGITS]


def read_prompt(path: Path) -> str:
    """Read a prompt file from the search roots. Raise `ConfigError` if it is missing or not a valid template."""
    found = paths.find(path, Path.is_file)
    if found is None:
        places = ", ".join(str(root) for root in paths.search_roots())
        raise ConfigError(f"prompt: there is no file '{path}' in {places}. Check the path.")
    template = found.read_text("utf-8-sig")
    try:
        names = fields_of_template(template)
    except ValueError as error:
        raise ConfigError(f"{found}: {error}. Write a literal brace twice.") from error
    if not all(name.isidentifier() for name in names):
        raise ConfigError(f"{found}: a field in {names} does not have a valid name. Write a literal brace twice.")
    return template
