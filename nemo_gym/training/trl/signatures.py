"""Turn tools into Python methods, because TRL makes a tool's schema from a method's name, types and docstring."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union

from nemo_gym.errors import UsageError
from nemo_gym.schemas.shapes import ToolDefinition

OWN_NAMES = ("reset", "get_reward")
"""Methods of an environment that TRL does not offer as tools."""
_TYPES: Mapping[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "null": type(None), "array": list, "object": dict,
}  # fmt: skip
_SECTION = re.compile(r"\n\s*(?:Args|Returns|Raises):\s*(?:\n|$)")

Call = Callable[[Any, str, Mapping[str, object]], str]


def method_of(definition: ToolDefinition, call: Call) -> Callable[..., str]:
    """Return a method that passes a tool's arguments to `call(self, name, arguments)`.

    Raise `UsageError` if the tool cannot be a method of TRL's environments.
    """
    name, schema = definition["name"], definition.get("parameters") or {}
    if name in OWN_NAMES or name.startswith("_"):
        raise UsageError(
            f"TRL cannot call the tool '{name}', because its name is reserved or begins with '_'. {_INSTEAD}"
        )

    def method(self: Any, /, **arguments: Any) -> str:
        return call(self, name, arguments)

    parameters = _parameters_of(name, schema)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = _docstring(definition.get("description") or name, schema.get("properties") or {})
    method.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": str}
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = inspect.Signature([receiver, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    return method


_INSTEAD = "Use nemo_gym.training.trl.Rollouts with this environment."


def _parameters_of(tool: str, schema: Mapping[str, Any]) -> list[inspect.Parameter]:
    shared, required = schema.get("$defs") or {}, schema.get("required") or ()
    parameters = []
    for name, each in (schema.get("properties") or {}).items():
        if not name.isidentifier() or keyword.iskeyword(name) or name == "self":
            raise UsageError(
                f"TRL cannot call the tool '{tool}', because its argument '{name}' cannot be the name of a parameter "
                f"in Python. {_INSTEAD}"
            )
        hint = hint_of(each, shared)
        default: object = inspect.Parameter.empty
        if name not in required:
            default = each.get("default") if isinstance(each, dict) else None
            hint = Union[hint, None] if default is None else hint  # noqa: UP007 - the hint is made at run time
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return parameters


def hint_of(schema: object, shared: Mapping[str, object]) -> Any:
    """Return the type hint for a JSON schema. `shared` holds the schemas that a `$ref` may name."""
    if not isinstance(schema, dict):
        return Any
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        # Follow each reference only once, because a schema may refer to itself.
        return hint_of(shared.get(name), {other: each for other, each in shared.items() if other != name})
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values and all(value is None or isinstance(value, str | int) for value in values):
        return Literal[tuple(values)]
    if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
        return Union[tuple(hint_of(each, shared) for each in choices)]  # noqa: UP007
    kind = schema.get("type")
    if isinstance(kind, list):
        return Union[tuple(hint_of({**schema, "type": each}, shared) for each in kind)]  # noqa: UP007
    if kind == "array" and "items" in schema:
        return list[hint_of(schema["items"], shared)]  # type: ignore[misc]
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return dict[str, hint_of(schema["additionalProperties"], shared)]  # type: ignore[misc]
    return _TYPES.get(str(kind), Any)


def _docstring(description: str, properties: Mapping[str, object]) -> str:
    # Remove docstring sections from the description, because its `Args:` section would hide the generated one.
    summary = _SECTION.split(f"{description}\n")[0].strip()
    if not properties:
        return summary
    lines = [f"    {name}: {_described(name, schema)}" for name, schema in properties.items()]
    return "\n".join([summary, "", "Args:", *lines])


def _described(name: str, schema: object) -> str:
    described = schema.get("description") if isinstance(schema, dict) else None
    # TRL requires a description. If there is none, use the name, which says more than the type.
    return " ".join(str(described).split()) if described else name.replace("_", " ").capitalize()
