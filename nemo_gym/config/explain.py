"""Readable messages for invalid settings, with their file and line, instead of pydantic's own report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nemo_gym import paths
from nemo_gym.config.foreign import with_our_names
from nemo_gym.config.masking import MASK, is_secret_key, mask_text
from nemo_gym.config.models import Origin
from nemo_gym.config.settings import AgentServerRef, ModelServerRef, ResourcesServerRef
from nemo_gym.errors import ConfigError
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.text import CERTAINLY_MEANT, closest, did_you_mean

ModelT = TypeVar("ModelT", bound=BaseModel)

METADATA_KEYS = frozenset({
    "verified", "verified_url", "description", "value", "license", "domain", "capability", "task_type", "datasets",
    "allowed_agents", "allowed_model_types",
})  # fmt: skip
"""Keys that any server block may have, even if its config class has no such fields."""

KNOWN_FIELDS = "known_fields"
"""The key of the list of known fields, in the `ctx` of pydantic's error for an unknown field."""

_UNION_MEMBER = re.compile(r"[A-Z]|.*[\[(-]|(?:str|int|float|bool|bytes|none|dict|list|tuple|set|literal|any)$")
"""Matches pydantic's names for members of a union, such as `ModelServerRef`, `list[str]`, `function-after`, `int`."""

LOWER_BOUNDS = ("greater_than", "greater_than_equal")
"""Pydantic's error types for a value that is too low."""

_REFERENCES: Mapping[str, str] = {
    reference.__name__: get_args(reference.model_fields["type"].annotation)[0]
    for reference in (ModelServerRef, ResourcesServerRef, AgentServerRef)
}
"""The server type that each reference class requires."""


def explain_validation(
    error: ValidationError, *, block: str, origins: Mapping[str, Origin], known: Iterable[str] = ()
) -> str:
    """Return one line per mistake: `file:line: block.key: problem`.

    `block` is the dotted key of the validated block. `origins` maps the dotted keys below the block, and "" for the
    block itself, to their file and line. `known` lists the allowed keys, for suggestions.
    """
    return "\n".join(_explained(error, block, origins, tuple(known)))


def explain_input(error: ValidationError, given: object, *, block: str, known: Iterable[str] = ()) -> str:
    """Describe the most relevant mistake in a JSON value, with its path. `known` are the top-level fields.

    Every member of a union reports an error. The member with the longest path is taken as the intended one.
    """
    furthest = max(error.errors(include_url=False), key=lambda detail: len(detail["loc"]))
    path = tuple(_present_part(_loc(furthest), given))
    return f"{'.'.join((block, *path))}: {_sentence([_problem(furthest, path, tuple(known))])}"


def explain_params(error: ValidationError, row: Mapping[str, object], given: object) -> str:
    """Describe the most relevant mistake in a row's request to the model. `given` is the invalid request."""
    known = ResponseCreateParams.model_fields
    return misspelt_params(row) or explain_input(error, given, block="responses_create_params", known=known)


def misspelt_params(row: Mapping[str, object]) -> str | None:
    """Return a message if a row has a misspelt key instead of `responses_create_params`."""
    known = "responses_create_params"
    others = [key for key in row if key != known]
    if row.get(known) is None and (misspelt := closest(known, others, CERTAINLY_MEANT)):
        return f"{known} is missing. Is '{misspelt}' a typo for it?"
    return None


def _present_part(loc: tuple[int | str, ...], given: object) -> Iterator[str]:
    """Yield the parts of a pydantic location, but skip names of union members, because the JSON has no such keys."""
    for part in loc:
        entries = given if isinstance(given, Mapping) else dict(enumerate(given)) if isinstance(given, list) else {}
        if part in entries or part is loc[-1]:
            yield str(part)
        given = entries.get(part, given)


def parse_settings(
    model_class: type[ModelT],
    settings: Mapping[str, object],
    *,
    block: str,
    origins: Mapping[str, Origin],
    context: Mapping[str, object] | None = None,
) -> ModelT:
    """Return a server's settings as an instance of `model_class`. Raise `ConfigError` with one line per mistake.

    An unknown key is a mistake only if it resembles an unset field, because blocks may contain any other metadata.
    """
    settings = with_our_names(model_class, settings, block, origins)
    # Collect the errors of the class first, so that a misspelt key that one of them names is not reported again.
    parsed: ModelT | None = None
    problems: list[str] = []
    try:
        parsed = model_class.model_validate(_with_home(model_class, settings), context=context)
    except ValidationError as error:
        problems = _explained(error, block, origins, ())
    found, named = _near_misses(model_class, settings, (), block, origins), "\n".join(problems)
    near = [line for line, key in found if f"'{key}'" not in named]
    # A class that forbids unknown keys also reports a misspelt key. Drop that report, because it has no suggestion.
    problems = [problem for problem in problems if not any(line.startswith(problem) for line in near)]
    if parsed is None or near:
        raise ConfigError("\n".join(problems + near))
    return parsed


def _with_home(model_class: type[BaseModel], settings: Mapping[str, object]) -> dict[str, object]:
    kinds = {name: info.annotation for name, info in model_class.model_fields.items()}
    return {key: paths.expand_home(value, kinds.get(key)) for key, value in settings.items()}


def problems_by_key(error: ValidationError) -> dict[str, str]:
    """Return the problems in a validation error, keyed by dotted key."""
    return problems_of(error.errors(include_url=False))


def explained_in_a_line(error: ValidationError) -> str:
    """Return the problems in a validation error as one line, each after its dotted key."""
    return "; ".join(f"{key}: {problem}" if key else problem for key, problem in problems_by_key(error).items())


def problems_of(details: Iterable[ErrorDetails]) -> dict[str, str]:
    """Return the problems in pydantic's error details, keyed by dotted key."""
    problems: dict[str, list[str]] = {}
    for detail in _of_meant_members(details):
        first, *inner = map(str, _loc(detail) or ("",))
        path = (first, *_written_part(tuple(inner), {}))
        problems.setdefault(".".join(path), []).append(_problem(detail, path, ()))
    return {key: _sentence(found).removesuffix(".") for key, found in problems.items()}


def with_known_fields(detail: Mapping[str, Any], body: object) -> dict[str, Any]:
    """Return the error detail of a request body of type `body`. For an unknown field, add the known fields."""
    model = _model_in(body)
    for part in detail["loc"][1:-1]:
        fields = _fields_of(model) if model else {}
        if part in fields:
            model = _model_in(fields[part].annotation)
    if detail["type"] != "extra_forbidden" or model is None:
        return dict(detail)
    return {**detail, "ctx": {KNOWN_FIELDS: [*_fields_of(model)]}}


def near_misses(
    model_class: type[BaseModel], settings: Mapping[str, object], *, block: str, origins: Mapping[str, Origin]
) -> list[str]:
    """Return one line per unknown key that resembles an unset field of the class.

    A key from the command line may also resemble a set field, because it is meant to override that field.
    """
    return [line for line, _ in _near_misses(model_class, settings, (), block, origins)]


def _explained(error: ValidationError, block: str, origins: Mapping[str, Origin], known: tuple[str, ...]) -> list[str]:
    lines: dict[tuple[str, ...], list[str]] = {}
    for detail in error.errors(include_url=False):
        path = _written_part(tuple(map(str, _loc(detail))), origins)
        lines.setdefault(path, []).append(_problem(detail, path, known))
    return [
        f"{place_of(path, origins)}: {'.'.join((block, *path)).strip('.')}: {_sentence(problems)}"
        for path, problems in lines.items()
    ]


def _of_meant_members(details: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """Return the problems without those of union members that the value was not meant to match.

    If a value has the type of one member but is too low, it was meant to match that member. For example, 0 for
    `PositiveInt | dict` is reported as too low, but not as "not a mapping".
    """
    found = list(details)
    # Convert each location to a tuple, because it is a list if the problems come from another server's JSON reply.
    too_low = [tuple(detail["loc"]) for detail in found if detail["type"] in LOWER_BOUNDS]

    def is_of_another_member(detail: ErrorDetails) -> bool:
        *union, member = detail["loc"] or ("",)
        is_member = detail["type"].endswith("_type") and _UNION_MEMBER.match(str(member))
        return bool(is_member) and any(place[: len(union)] == tuple(union) for place in too_low)

    return [detail for detail in found if not is_of_another_member(detail)]


def _sentence(problems: list[str]) -> str:
    text = "; or ".join(dict.fromkeys(problems))
    return text if text.endswith("?") else f"{text}."


def _loc(detail: ErrorDetails) -> tuple[int | str, ...]:
    """Return the location of a problem. For a missing list item, return the location of the list."""
    return detail["loc"][:-1] if detail["type"] == "missing" and isinstance(detail["input"], list) else detail["loc"]


def _written_part(loc: tuple[str, ...], origins: Mapping[str, Origin]) -> tuple[str, ...]:
    """Return a pydantic location without names of union members, because the YAML has no such keys."""
    path: tuple[str, ...] = ()
    for part in loc:
        if ".".join((*path, part)) in origins or not _UNION_MEMBER.match(part):
            path = (*path, part)
    return path


def place_of(path: tuple[str, ...], origins: Mapping[str, Origin]) -> str:
    """Return the file and line of a key, or of the nearest block above it.

    The place of a key is unknown, for example, if an interpolation inserts its block.
    """
    above = (origins.get(".".join(path[:count])) for count in range(len(path), -1, -1))
    return str(next(filter(None, above), "the configuration"))


def _problem(detail: ErrorDetails, path: tuple[str, ...], known: tuple[str, ...]) -> str:
    kind, message, given = detail["type"], str(detail["msg"]).rstrip("."), detail.get("input")
    if kind == "missing" and isinstance(given, list):
        return f"it must have more items, but has {len(given)}"
    if kind == "missing":
        keys = [str(key) for key in given] if isinstance(given, Mapping) else []
        like = closest(path[-1], keys, CERTAINLY_MEANT)
        return f"it is missing; is '{like}' a typo for it?" if like else f"it is missing; add `{path[-1]}: …`"
    if kind == "union_tag_not_found":
        return "its type must be a text, such as 'message'"
    if kind == "extra_forbidden":
        hint = did_you_mean(path[-1], known or detail.get("ctx", {}).get(KNOWN_FIELDS, ()))
        return f"unknown setting.{hint}" if hint else "unknown setting"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind in ("literal_error", "enum"):
        choices = str(detail["ctx"]["expected"])
        names = re.findall(r"'([^']+)'", choices)
        hint = did_you_mean(given, names) if isinstance(given, str) else ""
        return f"it must be {choices}, but is {_shown(given, path)}{hint and f'.{hint}'}"
    if kind in ("model_type", "model_attributes_type"):
        tier = _REFERENCES.get(detail["ctx"]["class_name"])
        form = f"{{type: {tier}, name: {given if isinstance(given, str) else '…'}}}" if tier else "a mapping"
        return f"it must be {form}, but is {_shown(given, path)}"
    if kind == "greater_than" and isinstance(given, int) and isinstance(bound := detail["ctx"]["gt"], int):
        message = f"it must be at least {bound + 1}"
    if kind == "dict_type":
        message = "Input should be a mapping"
    if kind.endswith("_parsing"):
        message = message.split(",", maxsplit=1)[0]
    quoted = "; put it in quotes" if kind == "string_type" and isinstance(given, bool | int | float) else ""
    return f"{message.replace('Input should be', 'it must be', 1)}, but is {_shown(given, path)}{quoted}"


def _shown(given: object, path: tuple[str, ...]) -> str:
    if given is None:
        return "empty"
    if isinstance(given, Mapping | list | BaseModel):
        return "a list" if isinstance(given, list) else "a mapping"
    if any(is_secret_key(part) for part in path):
        return MASK
    text = mask_text(repr(given))
    return text if len(text) <= 80 else text[:77] + "..."


def _near_misses(
    model_class: type[BaseModel],
    settings: Mapping[str, object],
    path: tuple[str, ...],
    block: str,
    origins: Mapping[str, Origin],
) -> Iterator[tuple[str, str]]:
    """Yield a (message, key) pair for each misspelt key."""
    fields = _fields_of(model_class)
    if model_class.model_config.get("extra") != "allow":
        # Config files often write out defaults for users to override, so a field at its default counts as unset.
        unset = [name for name, field in fields.items() if name not in settings or settings[name] == field.default]
        for key in settings:
            if key in fields or key in METADATA_KEYS:
                continue
            where = (*path, str(key))
            origin = origins.get(".".join(where))
            is_override = origin is not None and origin.line == 0
            meant = closest(str(key), fields if is_override else unset, CERTAINLY_MEANT)
            if meant and str(key) not in model_class.model_fields:
                problem = f"unknown setting. Did you mean '{meant}'?"
                yield f"{place_of(where, origins)}: {'.'.join((block, *where))}: {problem}", str(key)
    for name, field in fields.items():
        inner, given = _model_in(field.annotation), settings.get(name)
        if inner and isinstance(given, Mapping):
            yield from _near_misses(inner, given, (*path, name), block, origins)


def _fields_of(model_class: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model_class.model_fields.items()}


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model class in a field's annotation, or None if it does not contain exactly one."""
    models = [
        one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)
    ]
    return models[0] if len(models) == 1 else None
