"""Generate a value that a JSON Schema allows, and write it in one of the five formats."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from xml.sax.saxutils import escape

import yaml

Schema = dict[str, Any]


def value_for(schema: Any, root: Any = None) -> Any:
    """Return a value with every property that the schema names. Ignore patterns and later alternatives."""
    root = schema if root is None else root
    if not isinstance(schema, dict):
        return "anything"
    if "$ref" in schema:
        place = root
        for part in schema["$ref"].removeprefix("#").split("/")[1:]:
            place = place[part]
        return value_for(place, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return next((value for value in schema["enum"] if value is not None), None)
    ways = schema.get("anyOf") or schema.get("oneOf")
    if ways:
        return value_for(next((way for way in ways if way.get("type") != "null"), ways[0]), root)
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for part in [*schema["allOf"], {**schema, "allOf": None}]:
            if part.get("properties") or part.get("$ref"):
                merged |= value_for({key: item for key, item in part.items() if key != "allOf"}, root)
        return merged
    return _VALUES[_type_of(schema)](schema, root)


def _type_of(schema: Schema) -> str:
    named = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "string")
    types = named if isinstance(named, list) else [named]
    return next((type_ for type_ in types if type_ != "null"), "null")


def _text(schema: Schema, _root: Any) -> str:
    known = {"date": "2024-05-17", "email": "ada@example.org", "uri": "https://example.org/", "time": "12:30:00Z"}
    known["date-time"] = "2024-05-17T12:30:00Z"
    text = known.get(schema.get("format", ""), "a text")
    longer = text + " and more" * (max(0, schema.get("minLength", 0) - len(text)) // len(" and more") + 1)
    text = text if len(text) >= schema.get("minLength", 0) else longer
    return text[: schema.get("maxLength", len(text))]


def _integer(schema: Schema, _root: Any) -> int:
    step = int(schema.get("multipleOf", 1)) or 1
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in schema))
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + step) - ("exclusiveMaximum" in schema))
    return int(-(-min(low, high) // step) * step)


def _number(schema: Schema, root: Any) -> float:
    if "multipleOf" in schema:
        return _integer(schema, root)
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None and high is None:
        return 2.5
    return (low + high) / 2 if low is not None and high is not None else high - 0.5 if low is None else low + 0.5


def _list(schema: Schema, root: Any) -> list[Any]:
    count = min(max(1, schema.get("minItems", 2)), schema.get("maxItems", 1_000))
    return [value_for(schema.get("items", {}), root) for _ in range(count)]


def _object(schema: Schema, root: Any) -> dict[str, Any]:
    return {name: value_for(each, root) for name, each in schema.get("properties", {}).items()}


_VALUES: dict[str, Callable[[Schema, Any], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": lambda *_: True,
    "null": lambda *_: None,
    "array": _list,
    "object": _object,
}


def written(value: Any, schema_type: str) -> str:
    """Write a value as a document. TOML requires an object, and CSV an object or a list of objects."""
    return _WRITERS[schema_type](value)


def _toml(value: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(name)} = {_toml_value(item)}\n" for name, item in value.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _xml(value: Any) -> str:
    return f"<document>{''.join(_xml_content(value))}</document>"


def _xml_parts(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value or [None]:
            yield f"<{name}>{''.join(_xml_content(item))}</{name}>"
    else:
        yield f"<{name}>{''.join(_xml_content(value))}</{name}>"


def _xml_content(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _xml_parts(name, item)
    elif isinstance(value, list):
        yield from _xml_parts("item", value)
    elif value is not None:
        yield escape(value if isinstance(value, str) else json.dumps(value))


def _csv(value: Any) -> str:
    rows = value if isinstance(value, list) else [value]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in row.items()} for row in rows
    )
    return out.getvalue()


class _YamlDumper(yaml.SafeDumper):
    """A dumper that quotes texts that begin like a number, because YAML versions read some of them differently."""


def _quoted_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text[:1] in set("+-.0123456789") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_YamlDumper.add_representer(str, _quoted_text)


_WRITERS: dict[str, Callable[[Any], str]] = {
    "json": json.dumps,
    "yaml": lambda value: yaml.dump(value, Dumper=_YamlDumper, sort_keys=False),
    "xml": _xml,
    "toml": _toml,
    "csv": _csv,
}
