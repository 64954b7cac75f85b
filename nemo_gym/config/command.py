"""The published base of a command's settings: a model that prints its own help page."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, model_validator

HELP_KEYS = ("h", "help", "-h", "--help")


class BaseNeMoGymCLIConfig(BaseModel):
    """The settings of one command; asked for `h` or `help`, it prints what they are and ends the program."""

    @model_validator(mode="before")
    @classmethod
    def _help_where_it_is_asked_for(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and any(key in data for key in HELP_KEYS):
            print(cls.help_page())  # noqa: T201 - a page for the user
            sys.exit(0)
        return data

    @classmethod
    def help_page(cls) -> str:
        """One line for each setting: its name, type, default and description."""
        lines = [f"{cls.__name__}: {(cls.__doc__ or '').strip()}", ""]
        for name, field in cls.model_fields.items():
            kind = getattr(field.annotation, "__name__", str(field.annotation))
            default = (
                "required" if field.is_required() else f"default {field.get_default(call_default_factory=True)!r}"
            )
            lines.append(f"  +{name}=…  {kind}, {default}{f'. {field.description}' if field.description else ''}")
        return "\n".join(lines)
