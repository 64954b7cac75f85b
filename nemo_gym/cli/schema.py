"""The command that prints an environment's row fields, tools and settings, and the fields that grading adds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson
from pydantic import Field
from pydantic.json_schema import JsonSchemaValue
from rich.table import Column

from nemo_gym.cli import printing, tables
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.selectors import environment_config
from nemo_gym.cli.settings import JsonSettings
from nemo_gym.config.loading import load
from nemo_gym.config.overrides import Override
from nemo_gym.config.reading import shown
from nemo_gym.config.sources import CONFIG_PATHS
from nemo_gym.contract.environment import open_configs
from nemo_gym.contract.schema import schema_of
from nemo_gym.errors import UsageError
from nemo_gym.jsonl import JsonObject

LONGEST_TEXT = 400
"""The number of characters after which a string in the example row is cut."""
LONGEST_DEFAULT = 60
MOST_FIELDS = 8
"""The maximum number of fields to list in the type of an object. A larger object is shown as `object`."""
NAMES_OF_TYPES = {"string": "text", "boolean": "true|false", "integer": "whole number", "array": "list"}


class SchemaSettings(JsonSettings):
    """Parameters of `ng env schema`."""

    name: str | None = None
    """The name of an environment or benchmark, as `ng list environments` prints it."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON Schema."""


def schema(words: list[str]) -> int:
    """Print an environment's row fields, tools and settings, and the fields that grading adds."""
    line = Options("ng env schema", SchemaSettings, named_by="name", usual_selector="--environment").read(words)
    own = [each for each in line.overrides if _is_own(each)]
    settings = settings_from(SchemaSettings, load([], own, skip_dotenv=True).plain)
    overrides = [each for each in line.overrides if not _is_own(each)]
    files = [*line.paths, *([environment_config(settings.name)] if settings.name else [])]
    if not files and not any(each.path[0] == CONFIG_PATHS for each in overrides):
        raise UsageError("Name an environment, such as 'ng env schema mcqa'. 'ng list environments' lists them.")
    with open_configs(files, overrides) as environment:
        found = asyncio.run(schema_of(environment))
        place = environment.folder
    if settings.as_json:
        printing.say_json(found)
    else:
        _show(found, place)
    return 0


def _is_own(override: Override) -> bool:
    return override.path in {("name",), ("json",)}


def _show(found: JsonSchemaValue, folder: Path) -> None:
    details = found["x-nemo-gym"]
    printing.say(f"{found['title']} ({shown(folder)})\n")
    _section("Fields of a row", _fields(found, found["required"], found.get("$defs", {})))
    if details["tools"]:
        _section("Tools", _tools(details["tools"]))
    settings = details["settings"]
    if settings["properties"]:
        _section("Settings of the server", _fields(settings, settings["required"], settings.get("$defs", {})))
    _section("Fields that grading adds", _fields({"properties": details["verify_adds"]}, None, {}))
    if note := details.get("verify_adds_note"):
        printing.say(f"Fields may be missing here: {note.rstrip('.')}.\n")
    if limits := details["reward"]["range"]:
        better = "higher" if details["reward"]["higher_is_better"] else "lower"
        printing.say(f"The reward is between {limits[0]:g} and {limits[1]:g}; {better} is better.\n")
    for row in found["examples"]:
        printing.say("An example row")
        printing.say_json(_cut(row))


def _section(title: str, table: tables.Table) -> None:
    printing.say(title)
    tables.show(table)
    printing.say("")


def _table(*columns: str) -> tables.Table:
    return tables.Table(*(Column(name, overflow="fold") for name in columns))


def _fields(schema: JsonSchemaValue, required: list[str] | None, definitions: JsonSchemaValue) -> tables.Table:
    table = _table("name", "type", *([] if required is None else ["default"]), "meaning")
    for name, each in schema["properties"].items():
        default = "required" if name in (required or ()) else _default(each)
        default_cell = [] if required is None else [default]
        table.add_row(name, _type(each, definitions), *default_cell, each.get("description", ""))
    return table


def _tools(tools: list[JsonObject]) -> tables.Table:
    table = _table("name", "arguments", "meaning")
    for tool in tools:
        parameters = tool["parameters"]
        arguments = [
            f"{name}: {_type(each, parameters.get('$defs', {}))}"
            + ("" if name in parameters.get("required", ()) else f" = {_default(each)}")
            for name, each in parameters.get("properties", {}).items()
        ]
        table.add_row(tool["name"], ", ".join(arguments), tool["description"] or "")
    return table


def _default(field: Mapping[str, object]) -> str:
    written = orjson.dumps(field["default"]).decode() if field.get("default") is not None else tables.ABSENT
    return f"{written[:LONGEST_DEFAULT]}…" if len(written) > LONGEST_DEFAULT else written


def _type(schema: JsonSchemaValue, definitions: JsonSchemaValue) -> str:
    """Return a schema's type in words, such as `list of text`."""
    return " or ".join(dict.fromkeys(_types(schema, definitions))) or "any"


def _types(schema: JsonSchemaValue, definitions: JsonSchemaValue) -> Iterator[str]:
    if reference := schema.get("$ref"):
        target = definitions.get(reference.rpartition("/")[2], {})
        yield from _types(target, definitions) if "properties" not in target else [_object(target, definitions)]
    for each in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        # Leave out null. It is usually the default of the field, which the table shows in a separate column.
        yield from _types(each, definitions) if each.get("type") != "null" else ()
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        yield "|".join(map(str, values))
        return
    kinds = schema.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array" and (items := schema.get("items")):
            yield f"list of {_type(items, definitions)}"
        elif kind != "null":
            yield NAMES_OF_TYPES.get(kind, kind)


def _object(schema: JsonSchemaValue, definitions: JsonSchemaValue) -> str:
    if len(schema["properties"]) > MOST_FIELDS:
        return "object"
    needed = schema.get("required", ())
    fields = (f"{name}{'' if name in needed else '?'}" for name in schema["properties"])
    return f"{{{', '.join(fields)}}}"


def _cut(value: object) -> object:
    """Return a copy of a JSON value in which long strings are shortened."""
    if isinstance(value, dict):
        return {key: _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}… ({len(value):,} characters)"
    return value
