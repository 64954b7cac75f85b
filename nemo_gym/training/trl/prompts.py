"""Convert rows to TRL prompts (lists of chat messages). The first message of a prompt carries the whole row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson
from pydantic import ValidationError

from nemo_gym.config.explain import explain_params
from nemo_gym.dialects.chat_requests import chat_params
from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, dump_json
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.shapes import MessageJson

if TYPE_CHECKING:
    from datasets import Dataset


def dataset(rows: Iterable[Mapping[str, object]]) -> Dataset:
    """Return a dataset for `GRPOTrainer(train_dataset=…)` with one prompt for each row.

    Raise `DataError` for a row whose prompt cannot be expressed as chat messages.
    """
    from datasets import Dataset

    return Dataset.from_list([{"prompt": prompt_of(row, number)} for number, row in enumerate(rows)])


def prompt_of(row: Mapping[str, object], number: int) -> list[dict[str, object]]:
    """Return the chat messages of a row's prompt. The first message carries the row."""
    try:
        params = ResponseCreateParams.model_validate(row.get("responses_create_params"))
        messages = chat_params(params, keeps_tokens=False).messages
    except ValidationError as error:
        raise DataError(f"rows[{number}]: {explain_params(error, row, row.get('responses_create_params'))}") from error
    except DataError as error:
        raise DataError(f"rows[{number}]: {error}") from error
    # A row may have no messages, because its environment writes the first one. But TRL needs at least one.
    prompt = [{**message, "content": _text_of(message)} for message in messages] or [{"role": "user", "content": ""}]
    # Put the row into the prompt, because TRL passes only prompts to a `rollout_func`.
    prompt[0]["nemo_gym_row"] = dump_json(row).decode()
    return prompt


def row_of(prompt: Sequence[Mapping[str, object]]) -> JsonObject | None:
    """Return the row that a prompt carries, or None if the prompt was not made by `dataset`."""
    written = prompt[0].get("nemo_gym_row") if prompt and isinstance(prompt[0], Mapping) else None
    if not isinstance(written, str):
        return None
    row: JsonObject = orjson.loads(written)
    return row


def _text_of(message: MessageJson) -> object:
    """Return a message's content, with its text parts joined into one string, as most chat templates expect."""
    content = message.get("content")
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content or ""
