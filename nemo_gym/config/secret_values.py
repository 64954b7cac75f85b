"""Secret values of a run, to be masked in logs and other output."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Self
from urllib.parse import quote

from nemo_gym.config.environment import NEVER_HANDED, withheld_environment
from nemo_gym.config.masking import MASK, SECRET_VALUE, is_secret_key, mask_text
from nemo_gym.config.models import RunConfig

SHORTEST_SECRET = 6
"""The minimum length of a value to mask. Shorter values occur in text by chance."""
PLACEHOLDERS = frozenset({
    "api_key", "api-key", "apikey", "bearer", "changeme", "default", "dummy_key", "dummy-key", "no_key", "no-key",
    "not-needed", "password", "placeholder", "secret", "unused", "your_api_key", "your-api-key",
})  # fmt: skip
"""Dummy keys for endpoints that do not need a key. They are not masked, because they are words of ordinary text."""

_CREDENTIALS = re.compile(r"(?i)\b(?:bearer|basic|token)\s+(\S+)")


class SecretValues:
    """The secret values of a configuration, to be masked wherever they occur."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for line in value.splitlines() for form in _forms(line)}
        # Replace the longest secret first, because one secret may be part of another.
        self._values = sorted(found, key=len, reverse=True)
        self._raw = [value.encode() for value in self._values]

    def __bool__(self) -> bool:
        return bool(self._values)

    def __contains__(self, value: str) -> bool:
        return value in self._values

    @classmethod
    def of(cls, *settings: object) -> Self:
        """Collect secrets from plain data: the values of secret keys, and any other values that look like API keys."""
        return cls(value for each in settings for value in _secrets_in(each))

    def mask(self, text: str) -> str:
        """Mask these values, and everything that looks like an API key."""
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return mask_text(text)

    def mask_bytes(self, data: bytes) -> bytes:
        """Mask these values and leave everything else unchanged."""
        for value in self._raw:
            if value in data:
                data = data.replace(value, MASK.encode())
        return data


def secrets_of(run: RunConfig) -> SecretValues:
    """Return every known secret of a run: from its configuration, its environment, and its token."""
    settings = [server.settings for server in run.servers.values()]
    return SecretValues.of(dict(run.plain), settings, withheld_environment(), {"run_token": run.run_token})


def handed_environment(own: Mapping[str, object], others: Collection[Mapping[str, object]]) -> dict[str, str]:
    """Return the secret environment variables for the server process with the settings `own`.

    Omit a variable if its value is a secret in the settings of `others`, but not in `own`.
    """
    theirs, its_own = SecretValues.of(*others), SecretValues.of(own)
    return {
        name: value
        for name, value in withheld_environment().items()
        if name not in NEVER_HANDED and (value not in theirs or value in its_own)
    }


def _forms(value: str) -> set[str]:
    """Return the forms of a secret in text, JSON and URLs. For short values and placeholders, the set is empty."""
    value = value.strip()
    if len(value) < SHORTEST_SECRET or value.lower() in PLACEHOLDERS:
        return set()
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, safe="")}


def _secrets_in(value: object, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _secrets_in(child, is_secret or is_secret_key(str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_in(item, is_secret)
    elif isinstance(value, str) and is_secret:
        yield value
        yield from _CREDENTIALS.findall(value)
    elif isinstance(value, str):
        for found in SECRET_VALUE.findall(value):
            # In the `user:password` of a URL, only the password is secret.
            yield found.partition(":")[2] or found
    elif isinstance(value, int) and is_secret and not isinstance(value, bool):
        yield str(value)
