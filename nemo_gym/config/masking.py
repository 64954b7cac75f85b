"""Configuration as YAML for display, with secrets hidden."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_gym.config.models import RunConfig

MASK = "****"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = {"secret", "secrets", "password", "passwords", "passwd", "authorization", "apikey", "apikeys"}
_KEY_OWNERS = {"api", "access", "private", "secret", "signing", "subscription"}
_HARMLESS_TOKENS = {"bos", "eos", "pad", "unk", "sep", "stop", "mask", "max", "min", "per", "new", "special"}
SECRET_VALUE = re.compile(
    r"(?<![\w-])(?:sk-[\w-]{6,}|nvapi-[\w-]{6,}|hf_\w{6,}|gh[pousr]_\w{6,}|github_pat_\w{6,}|glpat-[\w-]{6,})"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_BEARER = re.compile(r"(?i)\b(bearer)\s+(?!\$\{)\S+")
_ONLY_INTERPOLATION = re.compile(r"\$\{[^${}]*\}")


def is_secret_key(name: str) -> bool:
    """Return whether a key holds a secret, such as `api_key` and `hf_token`, but not `max_tokens` and `token_ids`."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if _SECRET_WORDS & set(words):
        return True
    pairs = list(zip(["", *words], words, strict=False))
    if any(word in {"key", "keys"} and owner in _KEY_OWNERS for owner, word in pairs):
        return True
    return bool(pairs) and pairs[-1][1] == "token" and pairs[-1][0] not in _HARMLESS_TOKENS


def mask_text(text: str) -> str:
    """Hide everything in a text that looks like a credential: API keys, bearer tokens, passwords in URLs."""
    return _BEARER.sub(rf"\1 {MASK}", SECRET_VALUE.sub(MASK, text))


def masked(value: object, is_secret: bool = False) -> Any:
    """Return a copy of plain data with secrets hidden, detected by key name or by the shape of the value.

    Keep interpolations: `${oc.env:KEY}` is only the location of a secret.
    """
    if isinstance(value, Mapping):
        return {key: masked(child, is_secret or is_secret_key(str(key))) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, is_secret) for item in value]
    if value is None or isinstance(value, bool) or value in ("", "???"):
        return value
    if isinstance(value, str) and not is_secret:
        return mask_text(value)
    if isinstance(value, str) and _ONLY_INTERPOLATION.fullmatch(value) and "," not in value:
        return value
    return MASK if is_secret else value


def masked_yaml(run: RunConfig) -> str:
    """Return the merged configuration as YAML, with unresolved interpolations and hidden secrets."""
    return _as_yaml(masked(run.raw))


def raw_yaml(run: RunConfig) -> str:
    """Return the merged configuration as YAML, with unresolved interpolations and with secrets in plain text."""
    return _as_yaml(run.raw)


def _as_yaml(value: Mapping[str, object]) -> str:
    # Import OmegaConf here, because importing it is slow.
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(value), flags={"allow_objects": True}))
