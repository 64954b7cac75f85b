"""Validate a sandbox provider's options, which come from the config and from a sandbox's spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym.errors import SandboxOptionError
from nemo_gym.text import did_you_mean_or_all

Options = TypeVar("Options", bound=BaseModel)


def options_of(
    kind: type[Options], provider: str, given: BaseModel | Mapping[str, object] | None, more: Mapping[str, object]
) -> Options:
    """Validate the given options, overridden by `more`, and return them as an instance of `kind`.

    Raise `SandboxOptionError`, a `TypeError`, that names the first invalid key.
    """
    plain = given.model_dump(exclude_unset=True) if isinstance(given, BaseModel) else dict(given or {})
    try:
        return kind.model_validate({**plain, **more})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            choice = did_you_mean_or_all(key, kind.model_fields, "options")
            raise SandboxOptionError(f"the sandbox provider '{provider}' has no option '{key}'.{choice}") from None
        raise SandboxOptionError(f"the option '{key}' of the sandbox provider '{provider}': {first['msg']}.") from None
