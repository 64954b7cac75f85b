"""References within a JSON Schema, and the error for unusable schemas."""

from __future__ import annotations

from urllib.parse import unquote

from nemo_gym.jsonl import JsonObject

Schema = JsonObject | bool
"""A JSON Schema: a dict, True or False."""


class SchemaError(ValueError):
    """An error for an invalid schema, or one for which no instance was found. `pointer` points to the faulty part."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer}: {reason}")
        self.pointer = pointer
        self.reason = reason


def pointer_to(parent: str, *tokens: str | int) -> str:
    """Append tokens to a JSON pointer, with `~` and `/` escaped."""
    return "/".join([parent, *[str(token).replace("~", "~0").replace("/", "~1") for token in tokens]])


def resolve(root: Schema, reference: str) -> Schema:
    """Return the part of the schema that a `$ref` such as `#/$defs/Node` names."""
    if reference != "#" and not reference.startswith("#/"):
        raise SchemaError(reference, "only JSON pointers within the schema are supported, such as '#/$defs/Node'")
    found = root
    for token in unquote(reference).split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise SchemaError(reference, f"{key!r} is missing in the schema")
    return found
