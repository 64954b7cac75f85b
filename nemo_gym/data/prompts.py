"""Prompt templates, which turn rows into requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from nemo_gym import paths
from nemo_gym.data.media import IS_URL
from nemo_gym.errors import ConfigPathNotFoundError, DataError
from nemo_gym.jsonl import JsonObject, OutputPath, read_lines, read_rows, write_rows
from nemo_gym.text import CERTAINLY_MEANT, closest, counted, fields_of_template

INPUT_AND_PROMPT = "prompt_config is set, but the row has responses_create_params.input. Remove one of them."


class PromptConfig(BaseModel):
    """A prompt template. `{field}` inserts a field of the row; `{{` and `}}` are literal braces."""

    model_config = ConfigDict(frozen=True)

    user: str
    """The user message. `{field}` inserts a field of the row; `{{` and `}}` are literal braces."""
    system: str | None = None
    """A system message before the user message, with the same placeholders."""
    image: str | None = None
    """An image after the user's text, with the same placeholders: a path in the dataset's folder, or a URL."""

    @field_validator("user", "system", "image")
    @classmethod
    def _has_only_named_fields(cls, template: str | None) -> str | None:
        try:
            names = fields_of_template(template or "")
        except ValueError as error:
            raise ValueError(f"{error}; double each literal brace: {{{{ or }}}}") from error
        for name in names:
            # A name that starts with a quotation mark is the key of a JSON object in the template, not a field.
            if name.strip()[:1] in ("", "'", '"') or name[0].isdecimal():
                raise ValueError(
                    f"'{{{name}}}' does not name a field of the row; double each literal brace: {{{{ or }}}}"
                )
        return template


def load_prompt_config(path: str | Path) -> PromptConfig:
    """Find a prompt file in the search roots and read it.

    Raise `ConfigPathNotFoundError` (a `FileNotFoundError`) if the file does not exist, and `DataError` if it is
    invalid.
    """
    found = paths.find(path, Path.is_file)
    if found is None:
        places = ", ".join(str(root) for root in paths.search_roots())
        raise ConfigPathNotFoundError(f"prompt_config: file '{path}' not found in {places}. Check the path.")
    return read_prompt(found, found.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def read_prompt(found: Path, changed_at: int) -> PromptConfig:
    """Read a prompt file. Cache the result per modification time, because agents load it in every rollout."""
    try:
        content = yaml.safe_load(found.read_text("utf-8-sig"))
        if isinstance(content, dict):
            _check_keys(content, found)
        return PromptConfig.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(
            ": ".join(map(str, [*problem["loc"], problem["msg"].removeprefix("Value error, ")]))
            for problem in error.errors()
        )
        raise DataError(
            f"{found}: not a valid prompt: 'user' is required, 'system' and 'image' are optional. All are strings. "
            f"{problems}."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{found}: not readable as UTF-8 YAML: {error}") from error


def _check_keys(content: dict[object, object], found: Path) -> None:
    """Raise `DataError` for a misspelled key. Accept other unknown keys, because prompts of NeMo Gym have some."""
    for key in content:
        meant = closest(str(key), PromptConfig.model_fields, CERTAINLY_MEANT)
        if meant is not None and meant not in content:
            raise DataError(f"{found}: '{key}' is not a key of a prompt. Did you mean '{meant}'?")


def fill_prompt(cfg: PromptConfig, row: Mapping[str, object]) -> list[JsonObject]:
    """Return the prompt's messages for a row. Raise `KeyError` if the row lacks a field that the prompt uses."""
    parts = (("system", cfg.system), ("user", cfg.user))
    try:
        messages: list[dict[str, object]] = [
            {"role": role, "content": template.format_map(row)} for role, template in parts if template is not None
        ]
        if cfg.image is not None:
            place = cfg.image.format_map(row)
            messages[-1]["content"] = [
                {"type": "input_text", "text": messages[-1]["content"]},
                {"type": "input_image", "image_url" if IS_URL.match(place) else "image_path": place},
            ]
        return messages
    except (IndexError, AttributeError, TypeError, ValueError) as error:
        raise KeyError(
            f"the prompt does not fit the row ({error}). The row has these fields: {', '.join(sorted(row))}"
        ) from error
    except KeyError as error:
        raise KeyError(f"the prompt uses {error}, but the row has only: {', '.join(sorted(row))}") from error


def apply_prompt_to_row(row: JsonObject, cfg: PromptConfig) -> JsonObject:
    """Return the row with the prompt's messages as its `responses_create_params.input`.

    Raise `KeyError` if the row lacks a field that the prompt uses, or if its `responses_create_params` is not an
    object.
    """
    given = row.get("responses_create_params") or {}
    if not isinstance(given, dict):
        raise KeyError(f"responses_create_params must be an object, found {type(given).__name__}")
    return {**row, "responses_create_params": {**given, "input": fill_prompt(cfg, row)}}


def with_prompt(row: JsonObject, prompt: PromptConfig | None, place: str) -> JsonObject:
    """Return the row of a dataset with the dataset's prompt applied, if it has one.

    `place` is the row's file and line. Raise `DataError`, with `place`, if the row already has an input, or if the
    prompt does not fit the row.
    """
    if prompt is None:
        return row
    if has_input(row):
        raise DataError(f"{place}: {INPUT_AND_PROMPT}")
    try:
        return apply_prompt_to_row(row, prompt)
    except KeyError as error:
        raise DataError(f"{place}: {error.args[0]}.") from error


def has_input(row: Mapping[str, object]) -> bool:
    """Return whether a row already has the `input` that a prompt would fill in."""
    params = row.get("responses_create_params")
    return isinstance(params, dict) and "input" in params


def validate_prompt_compatibility(rows: Iterable[Mapping[str, object]], prompt: PromptConfig) -> None:
    """Raise `DataError` if rows already have an `input`, because the prompt would conflict with it."""
    taken = [number for number, row in enumerate(rows, start=1) if has_input(row)]
    if taken:
        shown = ", ".join(map(str, taken[:10])) + (" …" if len(taken) > 10 else "")
        raise DataError(
            f"prompt_config is set, but {counted(len(taken), 'row')} already contained responses_create_params.input "
            f"(rows {shown}). Remove prompt_config or the rows' input."
        )


class MaterializePromptsConfig(BaseModel):
    """Settings of prompt materialization: the rows, the prompt and the output file."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    input_jsonl_fpath: Path
    """The rows, one JSON object per line, each without an input."""
    prompt_config: str
    """The prompt file."""
    output_jsonl_fpath: OutputPath
    """The output file: the rows, each with the prompt's messages as its input."""


def materialize_prompts(input_jsonl_fpath: str | Path, prompt: PromptConfig, output_jsonl_fpath: str | Path) -> int:
    """Write a file's rows with the prompt's messages as input, and return the number of rows.

    The output is written atomically. If the prompt does not fit a row, raise `DataError` with the line of the row.
    """
    source = paths.find(input_jsonl_fpath, Path.is_file) or Path(input_jsonl_fpath)
    validate_prompt_compatibility(read_rows(source), prompt)
    return write_rows(Path(output_jsonl_fpath), _filled(source, prompt))


def _filled(source: Path, prompt: PromptConfig) -> Iterator[Mapping[str, object]]:
    for number, _, row in read_lines(source):
        yield with_prompt(row, prompt, f"{source}:{number}")
