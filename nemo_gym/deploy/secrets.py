"""Find secrets that a configuration contains as plain text."""

from __future__ import annotations

import re

from nemo_gym.config.masking import is_secret_key, mask_text
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.tree import Node, Path, dotted, walk
from nemo_gym.errors import ConfigError

_INTERPOLATION = re.compile(r"\$\{[^${},]*(?:,([^${}]*))?\}")
"""A regex for an interpolation. The group is the default value, if there is one."""
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic|token)\b")


def check_no_secrets(tree: Node) -> None:
    """Raise `ConfigError` if a value is a secret. Everyone who sees the Kubernetes manifest could read the secret."""
    for path, node in walk(tree):
        if _is_secret(path, node.value):
            raise ConfigError(
                f"{node.origin}: {dotted(path)} is a secret, which everyone who sees the manifest could read. Move it "
                "to env.yaml, from which you create the Secret, or write ${oc.env:NAME} and add NAME to the Secret."
            )


def _is_secret(path: Path, value: object) -> bool:
    if isinstance(value, dict | list) or value is None:
        return False
    is_secret = any(is_secret_key(str(key)) for key in path)
    if not isinstance(value, str):
        return is_secret and bool(SecretValues.of({"secret": value}))
    # Check the default value of an interpolation, too, because it is part of the config.
    written = [_INTERPOLATION.sub(" ", value), *_INTERPOLATION.findall(value)]
    if is_secret:
        return any(SecretValues.of({"secret": _SCHEME.sub("", text).strip()}) for text in written)
    return any(mask_text(text) != text for text in written)
