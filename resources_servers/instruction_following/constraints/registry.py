"""Look up constraints by id, and validate their arguments with the types that each check declares."""

from __future__ import annotations

import difflib
import inspect
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from nemo_gym import InvalidTask
from resources_servers.instruction_following.constraints import (
    case,
    copying,
    counts,
    formats,
    keywords,
    language,
    layout,
    length,
    tables,
    tasks,
    words,
)

Check = Callable[..., bool]

UNSUPPORTED = {
    "words:start_verb": "it needs a tagger of parts of speech",
    "words:odd_even_syllables": "it needs a dictionary of syllables",
}
"""Constraints of the public data that are not supported, each with the reason."""

_CLOSE_ENOUGH = 0.5
_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Invisible characters that Unicode classifies as letters or symbols: Hangul fillers and the empty Braille pattern."""


@dataclass(frozen=True)
class Constraint:
    """A check and the arguments for it."""

    id: str
    arguments: Mapping[str, Any]

    def holds_for(self, text: str) -> bool:
        """Return whether a text follows the constraint. A text without a visible character never does."""
        return any(map(_is_visible, text)) and bool(_checks()[self.id](text, **self.arguments))


def constraint(id_: str, arguments: Mapping[str, Any] | None = None) -> Constraint:
    """Return the constraint with this id. An argument that is None counts as missing, as in the public data.

    Raises `InvalidTask` for invalid arguments and for an unknown id. The message suggests similar ids.
    """
    if id_ in UNSUPPORTED:
        raise InvalidTask(f"constraint '{id_}' is not supported: {UNSUPPORTED[id_]}. Leave out the row.")
    check = _checks().get(id_)
    if check is None:
        near = difflib.get_close_matches(id_, _checks(), n=3, cutoff=_CLOSE_ENOUGH)
        same_name = [known for known in _checks() if known.split(":")[-1] == id_.rsplit(":", maxsplit=1)[-1]]
        close = list(dict.fromkeys([*same_name, *near]))[:3]
        hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else "No known id is similar."
        raise InvalidTask(f"unknown constraint '{id_}'. {hint}")
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        read = _model_of(id_).model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InvalidTask(f"constraint '{id_}': {problems}. Fix its arguments in the row.") from error
    return Constraint(id_, {name: getattr(read, name) for name in type(read).model_fields})


def constraint_ids() -> list[str]:
    """Return all ids in alphabetical order."""
    return sorted(_checks())


def _is_visible(character: str) -> bool:
    # Exclude combining marks, spaces and format characters such as U+200B, because they are invisible on their own.
    return unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_LETTERS


@cache
def _checks() -> dict[str, Check]:
    modules = (case, copying, counts, formats, keywords, language, layout, length, tables, tasks, words)
    return {id_: check for module in modules for id_, check in module.CHECKS.items()}


@cache
def _model_of(id_: str) -> type[BaseModel]:
    check = _checks()[id_]
    types = get_type_hints(check, include_extras=True)
    fields: dict[str, Any] = {
        name: (types[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
        for name, parameter in inspect.signature(check).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return create_model(f"arguments of {id_}", __config__=ConfigDict(extra="forbid"), **fields)
