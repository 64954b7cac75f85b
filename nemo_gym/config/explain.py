"""Say where a setting is wrong, and what was probably meant, in place of pydantic's own report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from nemo_gym.config.masking import MASK, is_secret_key, mask_text
from nemo_gym.config.models import Origin
from nemo_gym.config.settings import AgentServerRef, ModelServerRef, ResourcesServerRef
from nemo_gym.config.suggestions import closest, did_you_mean

METADATA_KEYS = frozenset({"verified", "verified_url", "description", "value", "license", "domain", "datasets"})
"""What published server blocks carry for people; no server class needs to know them."""

_UNION_MEMBER = re.compile(r"[A-Z]|.*[\[(-]|(?:str|int|float|bool|bytes|none|dict|list|tuple|set|literal|any)$")
"""How pydantic calls a member of a union: `ModelServerRef`, `list[str]`, `function-after`, `int`."""

_REFERENCES: Mapping[str, str] = {
    reference.__name__: get_args(reference.model_fields["type"].annotation)[0]
    for reference in (ModelServerRef, ResourcesServerRef, AgentServerRef)
}
"""The tier of what each class of reference names."""

_NEAR = 0.85
"""`temprature` is that near to `temperature`; `top_k` and `top_p`, or `judge` and `judge_model`, are not."""


def explain_validation(
    error: ValidationError, *, block: str, origins: Mapping[str, Origin], known: Iterable[str] = ()
) -> str:
    """One line for each mistake: `file:line: block.key: problem`.

    `block` is the dotted key of what was validated, `origins` its places below that ("" is the block itself),
    `known` the keys it may have, for a suggestion where one is not allowed.
    """
    return "\n".join(_explained(error, block, origins, tuple(known)))


def explain_input(error: ValidationError, given: Any, *, block: str, known: Iterable[str] = ()) -> str:
    """The gravest mistake in a piece of JSON, with the keys that lead to it; `known` are the fields at its top.

    Of a union, every branch complains; the one that read furthest is the one that was meant.
    """
    furthest = max(error.errors(include_url=False), key=lambda branch: len(branch["loc"]))
    path = tuple(_present_part(furthest["loc"], given))
    return f"{'.'.join((block, *path))}: {_sentence([_problem(furthest, path, tuple(known))])}"


def _present_part(loc: tuple[int | str, ...], given: Any) -> Iterator[str]:
    """A pydantic location less the names of union members, which stand in no JSON."""
    for part in loc:
        is_there = part in given if isinstance(given, Mapping) else isinstance(given, list) and isinstance(part, int)
        if is_there or part is loc[-1]:
            yield str(part)
        if is_there:
            given = given[part]


def check_settings(
    model_class: type[BaseModel],
    settings: Mapping[str, Any],
    *,
    block: str,
    origins: Mapping[str, Origin],
    context: Mapping[str, Any] | None = None,
) -> list[str]:
    """What is wrong with a server's settings, one line for each mistake; empty where nothing is.

    Beside what the class refuses, a key that it does not know and that looks like one of its unset fields is
    a mistake. Other unknown keys are none: published blocks carry metadata. `name`, `host` and `port`, which
    the launcher gives, need not be among the settings.
    """
    given = {"name": block.split(".", maxsplit=1)[0], "host": "127.0.0.1", "port": 0, **settings}
    # What the class refuses comes first; a key reported there for its likely meaning is not told twice.
    problems: list[str] = []
    try:
        model_class.model_validate(given, context=context)
    except ValidationError as error:
        problems = _explained(error, block, origins, ())
    near = [line for line, key in _near_misses(model_class, settings, (), block, origins) if not _told(key, problems)]
    return problems + near


def problems_by_key(error: ValidationError) -> dict[str, str]:
    """What is wrong with each parameter of a command, by its dotted key."""
    problems: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False):
        path = _written_part(tuple(map(str, detail["loc"])), {})
        problems.setdefault(".".join(path), []).append(_problem(detail, path, ()))
    return {key: _sentence(told).removesuffix(".") for key, told in problems.items()}


def near_misses(
    model_class: type[BaseModel], settings: Mapping[str, Any], *, block: str, origins: Mapping[str, Origin]
) -> list[str]:
    """The unknown keys that look like an unset field of the class, one line each.

    What the command line adds may also look like a field that is set: it was to override that one.
    """
    return [line for line, _ in _near_misses(model_class, settings, (), block, origins)]


def _told(key: str, problems: list[str]) -> bool:
    return any(f"'{key}'" in problem for problem in problems)


def _explained(error: ValidationError, block: str, origins: Mapping[str, Origin], known: tuple[str, ...]) -> list[str]:
    lines: dict[tuple[str, ...], list[str]] = {}
    for detail in error.errors(include_url=False):
        path = _written_part(tuple(map(str, detail["loc"])), origins)
        lines.setdefault(path, []).append(_problem(detail, path, known))
    return [
        f"{_place(path, origins)}: {'.'.join((block, *path)).strip('.')}: {_sentence(problems)}"
        for path, problems in lines.items()
    ]


def _sentence(problems: list[str]) -> str:
    text = "; or ".join(dict.fromkeys(problems))
    return text if text.endswith("?") else f"{text}."


def _written_part(loc: tuple[str, ...], origins: Mapping[str, Origin]) -> tuple[str, ...]:
    """A pydantic location less the names of union members, which stand in no YAML."""
    path: tuple[str, ...] = ()
    for part in loc:
        if ".".join((*path, part)) in origins or not _UNION_MEMBER.match(part):
            path = (*path, part)
    return path


def _place(path: tuple[str, ...], origins: Mapping[str, Origin]) -> str:
    for count in range(len(path), -1, -1):
        origin = origins.get(".".join(path[:count]))
        if origin:
            return str(origin)
    return "the configuration"


def _problem(detail: Any, path: tuple[str, ...], known: tuple[str, ...]) -> str:
    kind, message, given = detail["type"], str(detail["msg"]).rstrip("."), detail.get("input")
    if kind == "missing":
        keys = [str(key) for key in given] if isinstance(given, Mapping) else []
        like = closest(path[-1], keys, _NEAR)
        return f"it is missing; is '{like}' meant for it?" if like else f"it is missing; add `{path[-1]}: …`"
    if kind == "extra_forbidden":
        return "there is no such setting" + _full_stop(did_you_mean(path[-1], known))
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind in ("literal_error", "enum"):
        choices = str(detail["ctx"]["expected"])
        names = re.findall(r"'([^']+)'", choices)
        hint = did_you_mean(given, names) if isinstance(given, str) else ""
        return f"it has to be {choices}, and is {_shown(given, path)}{_full_stop(hint)}"
    if kind in ("model_type", "model_attributes_type"):
        tier = _REFERENCES.get(detail["ctx"]["class_name"])
        form = f"{{type: {tier}, name: {given if isinstance(given, str) else '…'}}}" if tier else "a mapping"
        return f"it has to be {form}, and is {_shown(given, path)}"
    if kind == "dict_type":
        message = "Input should be a mapping"
    if kind.endswith("_parsing"):
        message = message.split(",", maxsplit=1)[0]
    quoted = "; put it in quotes" if kind == "string_type" and isinstance(given, bool | int | float) else ""
    return f"{message.replace('Input should be', 'it has to be', 1)}, and is {_shown(given, path)}{quoted}"


def _full_stop(hint: str) -> str:
    return hint and f".{hint}"


def _shown(given: Any, path: tuple[str, ...]) -> str:
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
    settings: Mapping[str, Any],
    path: tuple[str, ...],
    block: str,
    origins: Mapping[str, Origin],
) -> Iterator[tuple[str, str]]:
    """Each misspelt key as a line of its own, and the key."""
    fields = {field.alias or name: field for name, field in model_class.model_fields.items()}
    if model_class.model_config.get("extra") != "allow":
        # A field that is written down at its default is as good as unset: the YAML shows it to be overridden.
        unset = [name for name, field in fields.items() if name not in settings or settings[name] == field.default]
        for key in settings:
            if key in fields or key in METADATA_KEYS:
                continue
            where = (*path, str(key))
            origin = origins.get(".".join(where))
            is_override = origin is not None and origin.line == 0
            meant = closest(str(key), fields if is_override else unset, _NEAR)
            if meant and str(key) not in model_class.model_fields:
                problem = f"there is no such setting. Did you mean '{meant}'?"
                yield f"{_place(where, origins)}: {'.'.join((block, *where))}: {problem}", str(key)
    for name, field in fields.items():
        inner = _model_in(field.annotation)
        if inner and isinstance(settings.get(name), Mapping):
            yield from _near_misses(inner, settings[name], (*path, name), block, origins)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The one model class that a field may hold; None where it holds none, or one of several."""
    models = [
        one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)
    ]
    return models[0] if len(models) == 1 else None
