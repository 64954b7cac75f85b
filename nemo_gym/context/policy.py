"""The policy that a row names instead of the configured one. It is sent in a header of calls between servers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from nemo_gym.schemas.row import POLICY_KEYS

_URL = re.compile(r"https?://[!-\"$->@-~]+")
_PRINTABLE = re.compile(r"[!-~]+")


# Disable the repr, because it would show the API key.
@dataclass(frozen=True, repr=False)
class Policy:
    """A policy: its endpoint, its API key and its model's name. A field that is None keeps the configured value."""

    base_url: str | None = None
    """The endpoint's address, up to and including `/v1`."""
    api_key: str | None = None
    model: str | None = None
    servers: frozenset[str] = frozenset()
    """Names of the servers to which calls send the policy. Empty in model servers, which do not pass the policy on."""

    @classmethod
    def of_fields(cls, fields: Mapping[str, object]) -> Policy | None:
        """Return the policy that a row's fields name, or None if there is none.

        Raise `ValueError` if a field is invalid.
        """
        url, api_key, model = (_text(fields, key) for key in POLICY_KEYS)
        if url is not None and not _is_url(url):
            raise ValueError(
                f"policy_base_url must be a URL such as http://127.0.0.1:8000/v1, but is '{url.rpartition('@')[2]}'."
            )
        if api_key is not None and not _PRINTABLE.fullmatch(api_key):
            raise ValueError("policy_api_key must be printable ASCII characters without spaces.")
        return None if url is api_key is model is None else cls(url, api_key, model)

    @property
    def fields(self) -> dict[str, str]:
        """The fields by which a row names this policy."""
        named = {"policy_base_url": self.base_url, "policy_api_key": self.api_key, "policy_model_name": self.model}
        return {key: value for key, value in named.items() if value is not None}

    @cached_property
    def header(self) -> bytes:
        """The header's value: the fields as JSON, in ASCII characters only."""
        return json.dumps(self.fields).encode()


def _text(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not (isinstance(value, str) and value):
        found = "empty" if value == "" else f"of type {type(value).__name__}"
        raise ValueError(f"{key} must be text, but is {found}.")
    return value


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(_URL.fullmatch(text) and parts.hostname and parts.port != 0)
    except ValueError:
        return False
