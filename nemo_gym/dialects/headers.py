"""Headers of every request to an endpoint, as a type of settings."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, text in headers.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header: use letters, digits and hyphens")
        if not VALUE.fullmatch(text):
            raise ValueError(f"the value of {name} has a line break or another character that headers must not have")
    return {"Authorization" if name.lower() == "authorization" else name: text for name, text in headers.items()}


SentHeaders = Annotated[dict[str, str], AfterValidator(_sendable)]
