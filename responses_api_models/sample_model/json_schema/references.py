"""What a `$ref` of a JSON Schema names, and the error for a schema that leads nowhere."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

Schema = Any
"""A JSON Schema: a dict, True or False. What it holds is the schema author's, so nothing more is promised."""


class SchemaError(ValueError):
    """A schema that nothing can be sampled from: it has no instance, or a part of it is not understood.

    `pointer` is the JSON pointer to that part, from the root of the schema (`#`).
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer}: {reason}")
        self.pointer = pointer
        self.reason = reason


def pointer_to(parent: str, *tokens: str | int) -> str:
    """The JSON pointer some steps below another."""
    return "/".join([parent, *[str(token).replace("~", "~0").replace("/", "~1") for token in tokens]])


def resolve(root: Schema, reference: str) -> Schema:
    """The part of the schema that a `$ref` names: a JSON pointer from the root, or an anchor."""
    own_name = root.get("$id") if isinstance(root, dict) else None
    local = reference.removeprefix(own_name) if own_name else reference
    if local and not local.startswith("#"):
        raise SchemaError(reference, "this $ref leads out of the schema, and nothing is fetched from elsewhere")
    fragment = unquote(local[1:])
    if fragment and not fragment.startswith("/"):
        return _anchored(root, fragment, reference)
    found = root
    for token in fragment.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise SchemaError(reference, f"this $ref leads nowhere, for there is no {key!r} on its way")
    return found


def _anchored(node: Schema, name: str, reference: str) -> Schema:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        if not isinstance(node, dict):
            continue
        if node.get("$anchor") == name or node.get("$id") == f"#{name}":
            return node
        waiting.extend(node.values())
    raise SchemaError(reference, f"this $ref leads nowhere, for no part of the schema has the anchor {name!r}")
