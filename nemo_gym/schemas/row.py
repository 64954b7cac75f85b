"""Typed access to a row of a run's files: a task as sent, a scored rollout or a failed one."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import orjson

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, loads_exact, parse_row, read_lines_at, read_rows
from nemo_gym.schemas.shapes import AnswerJson, RequestJson

TASK_INDEX_KEY = "_ng_task_index"
ROLLOUT_INDEX_KEY = "_ng_rollout_index"
ATTEMPT_INDEX_KEY = "_ng_attempt_index"
ROLLOUT_ID_KEY = "_ng_rollout_id"
FAILURE_CLASS_KEY = "_ng_failure_class"
TERMINAL_KEY = "_ng_failure_terminal"
NO_PERSIST_KEY = "_ng_no_persist"
TOKEN_CAPTURE_RESULT_KEY = "_ng_token_capture"
TASK_ID_KEYS = ("task_id", "problem_id", "instance_id")
SECONDS_KEY = "_ng_seconds"
"""The duration of the recorded attempt, from sending the row to its agent until the reply was read."""
UNGRADED = "ungraded"
"""The failure class of a rollout without a reward, because its reward depends on the other rollouts of its task."""
MEDIA_DIR_KEY = "_ng_media_dir"
PRIVATE_PREFIX = "_ng_"
POLICY_KEYS = ("policy_base_url", "policy_api_key", "policy_model_name")
"""Fields of a row that names its own policy. Only agents read them; results and records do not contain them."""

_IDENTITY = (TASK_INDEX_KEY, ROLLOUT_INDEX_KEY, ATTEMPT_INDEX_KEY, ROLLOUT_ID_KEY, "agent_ref", "skills_ref")
_NUMBERS = frozenset({TASK_INDEX_KEY, ROLLOUT_INDEX_KEY, ATTEMPT_INDEX_KEY})
_MESSAGE, _SERVER, _TIER = "_ng_failure_message", "_ng_failure_server", "_ng_failure_tier"
_JUDGE_ERROR, _CONVERSATION, _LOG = "_ng_failure_judge_error", "_ng_failure_conversation", "_ng_failure_log"
_RETRYABLE, _GROUP = "_ng_failure_retryable", "_ng_group"
_FAILURE = (FAILURE_CLASS_KEY, _MESSAGE, _SERVER, _TIER, _JUDGE_ERROR)
_DETAILS = (_CONVERSATION, _LOG, _RETRYABLE, TERMINAL_KEY, NO_PERSIST_KEY, _GROUP)
_OUTCOME = frozenset((*_FAILURE, *_DETAILS, ATTEMPT_INDEX_KEY, SECONDS_KEY, TOKEN_CAPTURE_RESULT_KEY))
FAILURE_OF_RELEASE_0_7 = ("failure_kind", "failure_reason")
"""Keys of the failure class and message in release 0.7. A dataset might use these names with another meaning."""

FieldT = TypeVar("FieldT")
ROLLOUT_ID_PATTERN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


class TaskKey(NamedTuple):
    """The numbers of a task and of its repeat, which identify a rollout regardless of the attempt."""

    task: int
    repeat: int

    def __str__(self) -> str:
        return f"{self.task}:{self.repeat}"


@dataclass(frozen=True, slots=True)
class Row:
    """A view of a JSON object. The object is not copied or validated. A field of an unexpected type counts as absent.

    Methods return a new object that shares its values with this row.
    """

    fields: JsonObject

    @property
    def task_index(self) -> int | None:
        return _integer(self.fields.get(TASK_INDEX_KEY))

    @property
    def repeat_index(self) -> int | None:
        return _integer(self.fields.get(ROLLOUT_INDEX_KEY))

    @property
    def attempt(self) -> int:
        """The number of failed attempts before this one."""
        return int(self.fields.get(ATTEMPT_INDEX_KEY) or 0)

    @property
    def key(self) -> TaskKey:
        """The numbers of the task and of its repeat. Raise `KeyError` with the name of a missing field."""
        task, repeat = self.fields.get(TASK_INDEX_KEY), self.fields.get(ROLLOUT_INDEX_KEY)
        if type(task) is not int:
            raise KeyError(TASK_INDEX_KEY)
        if type(repeat) is not int:
            raise KeyError(ROLLOUT_INDEX_KEY)
        return TaskKey(task, repeat)

    @property
    def rollout_id(self) -> str | None:
        """The explicit id or else `<task>-<repeat>`, followed by `-a<attempt>` in a retry. None if both are missing.

        Raise `ValueError` if an explicit id does not match `ROLLOUT_ID_PATTERN`.
        """
        rollout_id = self.fields.get(ROLLOUT_ID_KEY)
        if rollout_id is None:
            task, repeat = self.task_index, self.repeat_index
            if task is None or repeat is None:
                return None
            rollout_id = f"{task}-{repeat}"
        elif not isinstance(rollout_id, str) or not ROLLOUT_ID_PATTERN.fullmatch(rollout_id):
            raise ValueError(
                f"{ROLLOUT_ID_KEY} {rollout_id!r} is not a rollout id. Begin with a letter or digit, and use only "
                "letters, digits, '.', '_' and '-'"
            )
        return f"{rollout_id}-a{self.attempt}" if self.attempt else rollout_id

    @property
    def task_id(self) -> str | None:
        """The task's id from the row, or else the task's number."""
        found = (self.fields.get(key) for key in (*TASK_ID_KEYS, TASK_INDEX_KEY))
        return next((str(value) for value in found if value is not None), None)

    @property
    def agent(self) -> str | None:
        """The name of the agent that runs the row."""
        reference = self.fields.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        return name if isinstance(name, str) else None

    @property
    def params(self) -> RequestJson | None:
        """The request to the model, with the prompt as its input."""
        return _object(self.fields.get("responses_create_params"))

    @property
    def extra_body(self) -> JsonObject | None:
        """The fields to add to each model call, from JSON in the request's metadata; None if this is not an object."""
        metadata = _object((self.params or {}).get("metadata")) or {}
        try:
            return _object(loads_exact(metadata.get("extra_body") or "{}"))
        except orjson.JSONDecodeError:
            return None

    @property
    def media_dir(self) -> str | None:
        """The folder of the files that the row names; see `nemo_gym.data.media`."""
        folder = self.fields.get(MEDIA_DIR_KEY)
        return folder if isinstance(folder, str) else None

    @property
    def response(self) -> AnswerJson | None:
        return _object(self.fields.get("response"))

    @property
    def usage(self) -> Mapping[str, object] | None:
        """The token counts of the response."""
        response = self.response
        return None if response is None else _object(response.get("usage"))

    @property
    def reward(self) -> float | None:
        """The reward, if it is a finite number."""
        reward = self.fields.get("reward")
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            return None
        # Compare instead of calling `isfinite`, which raises an error for an integer that is too large for a float.
        return float(reward) if abs(reward) <= sys.float_info.max else None

    @property
    def is_masked(self) -> bool:
        """Whether the result or its `instance_config` asks not to train on the rollout."""
        config = _object(self.fields.get("instance_config")) or {}
        return bool(self.fields.get("mask_sample") or config.get("mask_sample"))

    @property
    def token_capture(self) -> JsonObject | None:
        """The recorded sequences of tokens that are not in the response, and the numbers of calls and tokens."""
        return _object(self.fields.get(TOKEN_CAPTURE_RESULT_KEY))

    @property
    def failure_class(self) -> str | None:
        """The cause of the failure, such as `timeout`; None if the rollout did not fail."""
        cause = self.fields.get(FAILURE_CLASS_KEY)
        return str(cause) if cause else None

    @property
    def failure_message(self) -> str | None:
        message = self.fields.get(_MESSAGE) or self.fields.get(_JUDGE_ERROR)
        return str(message) if message else None

    @property
    def failure_server(self) -> str | None:
        return self.fields.get(_SERVER)

    @property
    def failure_log(self) -> str | None:
        """The path of the log of the server that failed."""
        return self.fields.get(_LOG)

    @property
    def failure_tier(self) -> str | None:
        return self.fields.get(_TIER)

    @property
    def failure_conversation(self) -> JsonObject:
        """The recorded items of a failed rollout, as `items`, and the number of `omitted` ones; empty if none are."""
        return _object(self.fields.get(_CONVERSATION)) or {}

    @property
    def failure_fields(self) -> Mapping[str, object]:
        """The fields that describe the failure, such as its class and message; empty if the rollout succeeded."""
        return {key: self.fields[key] for key in _FAILURE if key in self.fields}

    @property
    def is_terminal(self) -> bool:
        """Whether the server reports that a retry cannot succeed."""
        return bool(self.fields.get(TERMINAL_KEY))

    @property
    def is_discarded(self) -> bool:
        """Whether the server asks not to save the result."""
        return bool(self.fields.get(NO_PERSIST_KEY))

    @property
    def identity(self) -> Mapping[str, object]:
        """The fields that every result copies from its row. They override the verifier's values."""
        return {key: self.fields[key] for key in _IDENTITY if key in self.fields}

    def may_retry(self, default: bool) -> bool:
        """Return whether an immediate retry may succeed. `default` applies if the row lacks this information."""
        return bool(self.fields.get(_RETRYABLE, default)) and not self.is_terminal

    def of_task(self, task: int) -> Row:
        return Row({**self.fields, TASK_INDEX_KEY: task})

    def of_repeat(self, repeat: int) -> Row:
        return Row({**self.fields, ROLLOUT_INDEX_KEY: repeat})

    def of_attempt(self, attempt: int) -> Row:
        return Row({**self.fields, ATTEMPT_INDEX_KEY: attempt})

    def with_fields(self, fields: Mapping[str, object]) -> Row:
        return Row({**self.fields, **fields})

    def with_group(self, size: int, compared: int, missing: Sequence[str]) -> Row:
        """Return the row with its group: how many members were compared, and which were missing."""
        return self.with_fields({_GROUP: {"size": size, "compared": compared, "missing": missing}})

    def with_may_retry(self, may_retry: bool) -> Row:
        return self.with_fields({_RETRYABLE: may_retry})

    def with_failure(
        self, cause: str, message: str, *, server: str | None, tier: str | None, may_retry: bool,
        log_file: str | None = None, conversation: JsonObject | None = None,
    ) -> Row:  # fmt: skip
        """Return the row with the fields of a failure, but without the policy that the row names."""
        known = {_LOG: log_file, _CONVERSATION: conversation}
        return self.without_policy().with_fields(
            {
                ATTEMPT_INDEX_KEY: self.attempt,
                FAILURE_CLASS_KEY: cause,
                _MESSAGE: message,
                _SERVER: server,
                _TIER: tier,
                _RETRYABLE: may_retry,
                "failure_kind": cause,
                "failure_reason": message,
                **{key: value for key, value in known.items() if value is not None},
            }
        )

    def without_outcome(self) -> Row:
        """Return the row without an earlier run's outcome. Agents would echo that outcome as if it were new."""
        removed = {*_OUTCOME, *FAILURE_OF_RELEASE_0_7} if FAILURE_CLASS_KEY in self.fields else _OUTCOME
        return Row({key: value for key, value in self.fields.items() if key not in removed})

    def without_policy(self) -> Row:
        """Return the row without the policy that it names, because the policy's API key must not be recorded."""
        return Row({key: value for key, value in self.fields.items() if key not in POLICY_KEYS})

    def without_numbers(self) -> Row:
        """Return the row without the numbers of its task, repeat and attempt."""
        return Row({key: value for key, value in self.fields.items() if key not in _NUMBERS})

    def without_private(self) -> JsonObject:
        """Return the row's fields except the collector's own fields (`_ng_…`)."""
        return {key: value for key, value in self.fields.items() if not key.startswith(PRIVATE_PREFIX)}


def rows_in(path: Path) -> Iterator[Row]:
    return map(Row, read_rows(path))


def rows_at(path: Path, offsets: Iterable[int]) -> Iterator[Row]:
    """Yield the rows at these offsets of a file."""
    with path.open("rb") as file:
        for offset in offsets:
            file.seek(offset)
            yield Row(parse_row(file.readline(), path, 0))


def offsets_by(path: Path, number_of: Callable[[TaskKey], int]) -> dict[int, array[int]]:
    """Return the offsets of a file's rows, grouped by `number_of`. Groups and offsets are in the order of the file."""
    offsets: dict[int, array[int]] = {}
    for offset, (number, raw) in read_lines_at(path):
        key = key_of(Row(parse_row(raw, path, number)), path, number)
        offsets.setdefault(number_of(key), array("Q")).append(offset)
    return offsets


def numbers_at_end(raw: bytes) -> TaskKey | None:
    """Return the task and repeat numbers of a planned row. Return None if they are not at the end of the row."""
    found = _AT_END.search(raw, max(0, len(raw) - 128))
    return TaskKey(int(found[1]), int(found[2])) if found else None


def key_at_end(raw: bytes, path: Path, number: int) -> TaskKey:
    """Return the key of a planned row, given its line. Parse the line only if the key is not at its end."""
    return numbers_at_end(raw) or key_of(Row(parse_row(raw, path, number)), path, number)


def key_of(row: Row, path: Path, number: int) -> TaskKey:
    """Return the key of a row of a run's file. Raise `DataError` with file and line if a number is missing."""
    try:
        return row.key
    except KeyError as error:
        raise DataError(
            f"{path}:{number}: {error} is missing, so the rollout's task is unknown. Remove the line, or "
            "choose another output."
        ) from error


_AT_END = re.compile(
    rb'"%b":([0-9]{1,12}),"%b":([0-9]{1,5})\}\s*$' % (TASK_INDEX_KEY.encode(), ROLLOUT_INDEX_KEY.encode())
)


def marks_of_failure(cause: str, message: str, server: str | None, *, is_of_judge: bool = False) -> JsonObject:
    """Return the fields that mark a server's result as failed."""
    marks = {FAILURE_CLASS_KEY: cause, _JUDGE_ERROR if is_of_judge else _MESSAGE: message}
    return {**marks, _SERVER: server} if server else marks


def mirror_mask(result: JsonObject) -> None:
    """Copy the marks of a masked result to its `instance_config`, from which NeMo RL reads them.

    If `instance_config` is not an object, it stays unchanged.
    """
    config = result.get("instance_config") or {}
    if isinstance(config, dict):
        marks = {key: result[key] for key in ("mask_sample", *FAILURE_OF_RELEASE_0_7) if key in result}
        result["instance_config"] = {**config, **marks}


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


def _object(value: FieldT) -> FieldT | None:
    return value if isinstance(value, dict) else None
