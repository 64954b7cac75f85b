"""The published base class of a command's settings. Its help page is generated from the fields of the class."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pydantic import BaseModel, model_validator

HELP_KEYS = ("h", "help", "-h", "--help")


class BaseNeMoGymCLIConfig(BaseModel):
    """Settings of one command. If `h` or `help` is set, print the help page and exit."""

    @model_validator(mode="before")
    @classmethod
    def _print_help_on_request(cls, data: object) -> object:
        if isinstance(data, Mapping) and any(key in data for key in HELP_KEYS):
            print(cls.help_page())  # noqa: T201 - a page for the user
            sys.exit(0)
        return data

    @classmethod
    def help_page(cls) -> str:
        """Return one line per setting: its name, type, default and description."""
        lines = [f"{cls.__name__}: {(cls.__doc__ or '').strip()}", ""]
        for name, field in cls.model_fields.items():
            kind = getattr(field.annotation, "__name__", str(field.annotation))
            default = repr(field.get_default(call_default_factory=True))
            need = "required" if field.is_required() else f"default {default}"
            lines.append(f"  +{name}=…  {kind}, {need}{f'. {field.description}' if field.description else ''}")
        return "\n".join(lines)
