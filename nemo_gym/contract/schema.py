"""The schema of an environment: fields of a row, tools, settings of the server, fields that grading adds."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from itertools import pairwise

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema

from nemo_gym.config.models import RunConfig, ServerConfig
from nemo_gym.config.process import ProcessSettings
from nemo_gym.config.settings import BaseResourcesServerConfig
from nemo_gym.contract.environment import Environment, Solution, agents_of, importing
from nemo_gym.contract.play import play
from nemo_gym.contract.tasks import named_tools
from nemo_gym.data.gather import file_of
from nemo_gym.data.prompts import load_prompt_config
from nemo_gym.data.task_data import task_data_class
from nemo_gym.errors import SignatureError, fault_in
from nemo_gym.jsonl import read_rows
from nemo_gym.process.serve import complete_server_class, load_module
from nemo_gym.schemas.sessions import ResourcesSeedSessionRequest
from nemo_gym.servers.agent import SimpleResponsesAPIAgent
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.group_verification import verifies_groups
from nemo_gym.servers.mcp.tools import McpTool, harvest
from nemo_gym.servers.resources import listed_tools
from nemo_gym.servers.tools.handlers import Handler, is_class_of
from nemo_gym.servers.tools.tool import RESERVED_NAMES, Tool
from nemo_gym.testing import serving
from nemo_gym.text import fields_of_template

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ROW_ROUTES = ("/seed_session", "/reset", "/verify")
"""The routes that receive a row."""
UNDECLARED = "In the example rows. The server does not declare it."
PLAIN_REPLY = "I am sure that the answer is 42."
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

Fields = dict[str, FieldInfo]


async def schema_of(environment: Environment) -> JsonSchemaValue:
    """Return the JSON Schema of a row. Its key `x-nemo-gym` describes the tools, settings and grading.

    To find the fields that grading adds, the first example row is run and graded. If this fails, `verify_adds_note`
    gives the reason.
    """
    with importing(environment.folder, "created"):
        server = environment.server()
    bodies = [*_bodies(server), *_bodies_of_agents(environment)]
    task_data = task_data_class(environment.folder)
    kinds = [*([task_data] if task_data else []), *bodies]
    row = _schema(environment.name, _fields_of(kinds, {"responses_create_params", "response"}))
    _add_request(row, environment)
    examples = list(_rows_in_files(environment))
    _add_undeclared(row, examples)
    config = type(server).model_fields["config"].annotation
    own_of_groups = {"group_verification"} if verifies_groups(type(server)) else set()
    shared = {*BaseResourcesServerConfig.model_fields} - own_of_groups
    own = _fields_of([config] if is_class_of(config, BaseModel) else [], shared)
    details = {
        "tools": list(tools_of(server, examples).values()),
        "settings": _schema(f"{environment.name} settings", own),
        "reward": environment.declared_reward.model_dump(mode="json"),
        **await _added(environment, server),
    }
    # Everything that does not describe the row, such as tools and settings, is in `x-nemo-gym`.
    return {"$schema": DIALECT, **row, "examples": examples[:1], "x-nemo-gym": details}


def _bodies(server: SimpleServer) -> list[type[BaseModel]]:
    """Return the body classes of the routes that receive a row. Leave out bodies that have the row in `task_data`."""
    # Reverse the routes, so that the dict keeps the first route for each path. Only that one is ever called.
    routes = {getattr(route, "path", ""): route for route in server.setup_webserver().routes[::-1]}
    found = (routes.get(path) for path in ROW_ROUTES)
    bodies = (each.body_field for each in found if isinstance(each, APIRoute))
    kinds = (body.field_info.annotation for body in bodies if body is not None)
    return [
        kind for kind in kinds if is_class_of(kind, BaseModel) and not issubclass(kind, ResourcesSeedSessionRequest)
    ]


def _bodies_of_agents(environment: Environment) -> Iterator[type[BaseModel]]:
    """Yield the classes in which the environment's agents receive a row."""
    for agent in agents_of(environment.run, environment.name):
        yield from bodies_of_agent(class_of(environment.run, agent))


def class_of(run: RunConfig, server: ServerConfig) -> type[SimpleServer]:
    """Return the class of a run's server. Raise `LaunchError` if it cannot be imported."""
    settings = ProcessSettings.of(run, server, cookie_secret="unused: nothing is served")
    with importing(server.folder):
        return complete_server_class(load_module(settings), settings)


def bodies_of_agent(kind: type[SimpleServer]) -> list[type[BaseModel]]:
    """Return the classes of the parameters in which an agent's `run` receives the row."""
    parameters = Handler.of(kind.run).open_parameters if issubclass(kind, SimpleResponsesAPIAgent) else []
    return [each.annotation for each in parameters if is_class_of(each.annotation, BaseModel)]


def _fields_of(models: Iterable[type[BaseModel]], others: Iterable[str]) -> Fields:
    """Return the fields of models, except `others`. A field that any model requires is required."""
    left_out, found = set(others), Fields()
    for model in models:
        meanings = field_docstrings(model)
        for name, info in model.model_fields.items():
            if name in left_out or (name in found and not info.is_required()):
                continue
            found[name] = described = copy(info)
            described.description = info.description or meanings.get(name)
    return found


def field_docstrings(model: type) -> dict[str, str]:
    """Return the docstrings of a class's annotated attributes, such as a model's fields."""
    found: dict[str, str] = {}
    for cls in model.__mro__[::-1]:
        if cls.__module__ == "builtins" or cls is BaseModel:
            continue
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        except (OSError, TypeError, SyntaxError):
            # Skip classes whose source is not in a file, because their docstrings cannot be read.
            continue
        if isinstance(body, ast.ClassDef):
            found |= _docstrings(body.body)
    return found


def _docstrings(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, after in pairwise(statements):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if (
            isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            yield field.target.id, " ".join(after.value.value.split())


class _Lenient(GenerateJsonSchema):
    """A generator of JSON Schema that allows any value for types without a schema, and omits the titles of fields."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}


def _schema(title: str, fields: Fields) -> JsonSchemaValue:
    definitions = {name: (info.annotation, info) for name, info in fields.items()}
    config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())
    model: type[BaseModel] = create_model(title, __config__=config, **definitions)  # type: ignore[call-overload]
    schema = model.model_json_schema(schema_generator=_Lenient)
    return {"title": title, "type": "object", "properties": {}, "required": [], **schema}


def _add_request(row: JsonSchemaValue, environment: Environment) -> None:
    """Add `responses_create_params`, the request to the model, to the schema of a row.

    If every dataset of the environment has a prompt, require the fields that the prompts use instead of the request.
    """
    datasets = [dataset for agent in agents_of(environment.run, environment.name) for dataset in agent.datasets]
    prompts = {dataset.prompt_config for dataset in datasets}
    request: JsonSchemaValue = {"type": "object", "description": "The request to the model: input, tools, sampling."}
    if not prompts or None in prompts:
        row["required"] = ["responses_create_params", *row["required"]]
        request["required"] = ["input"]
    else:
        request["description"] += " The prompt supplies the input."
        for prompt in sorted(filter(None, prompts)):
            for name in _placeholders(prompt):
                row["properties"].setdefault(name, {"description": f"A field of {prompt}."})
                row["required"] += [] if name in row["required"] else [name]
    row["properties"] = {"responses_create_params": request, **row["properties"]}


def _placeholders(prompt: str) -> list[str]:
    """Return the fields of a row that a prompt uses, in the order of their first use."""
    config = load_prompt_config(prompt)
    texts = (config.system, config.user, config.image)
    names = (name for text in texts for name in fields_of_template(text or ""))
    return list(dict.fromkeys(name.partition(".")[0].partition("[")[0] for name in names))


def tools_of(server: SimpleServer, examples: Iterable[Mapping[str, object]]) -> dict[str, Mapping[str, object]]:
    """Return the tools by name: those of the server, and those that only the example rows define."""
    own = listed_tools(server)
    found = list[McpTool | Tool](own)
    # If any route cannot be a tool, for example because it has a query parameter, list none of the routes.
    with suppress(SignatureError):
        found += harvest(server.setup_webserver(), own, not_tools=getattr(server, "NOT_TOOLS", RESERVED_NAMES)).tools
    tools: dict[str, Mapping[str, object]] = {
        each.name: {"name": each.name, "description": each.description, "parameters": each.parameters}
        for each in found
    }
    for row in examples:
        for tool in named_tools(row):
            name, parameters = tool["name"], tool.get("parameters") or {}
            tools.setdefault(name, {"name": name, "description": tool.get("description"), "parameters": parameters})
    return tools


def _rows_in_files(environment: Environment) -> Iterator[Mapping[str, object]]:
    """Yield the example rows as they are in the files, before a prompt is added."""
    for agent in agents_of(environment.run, environment.name):
        for dataset in agent.datasets:
            if dataset.type == "example":
                yield from read_rows(file_of(agent, dataset))


def _add_undeclared(row: JsonSchemaValue, examples: Iterable[Mapping[str, object]]) -> None:
    """Add the fields that only the example rows have. Give no types, because a few rows may not show all types."""
    for name in (name for example in examples for name in example):
        if name != "agent_ref":
            row["properties"].setdefault(name, {"description": UNDECLARED})


async def _added(environment: Environment, server: SimpleServer) -> Mapping[str, object]:
    """Return the types of the fields that grading adds to a row, and a note if some fields may be missing."""
    declared = _schema("response", _response_fields(server))["properties"]
    if not environment.rows:
        return {"verify_adds": declared, "verify_adds_note": "the environment has no example row to play"}
    row = environment.rows[0]
    attempts: list[Solution] = [*([environment.oracle.solve(row)] if environment.oracle else []), [PLAIN_REPLY]]
    seen: dict[str, list[object]] = {}
    try:
        async with serving(server):
            for items in attempts:
                played = await play(server, row, items, environment.empty_rivals)
                graded = played.graded.model_dump(mode="json", exclude_unset=True)
                for name, value in graded.items():
                    if name not in row and name not in ("responses_create_params", "response"):
                        seen.setdefault(name, []).append(value)
    except Exception as error:  # noqa: BLE001 - the rest of the schema does not depend on an author's verifier
        note = f"the first example row could not be played: {fault_in(environment.folder, error)}"
        return {"verify_adds": declared, "verify_adds_note": note}
    return {"verify_adds": declared | {name: _seen(values, declared.get(name)) for name, values in seen.items()}}


def _response_fields(server: SimpleServer) -> Fields:
    """Return the fields that the response class of `verify` declares, apart from those of the request."""
    routes = [route for route in server.setup_webserver().routes if getattr(route, "path", "") == "/verify"]
    kind = next((route.response_model for route in routes if isinstance(route, APIRoute)), None)
    of_all = {"responses_create_params", "response", "mask_sample", "failure_kind", "failure_reason"}
    requested = of_all.union(*(body.model_fields for body in _bodies(server)))
    return _fields_of([kind] if is_class_of(kind, BaseModel) else [], requested)


def _seen(values: Iterable[object], declared: Mapping[str, object] | None) -> JsonSchemaValue:
    if declared is not None and declared.keys() - {"title", "default"}:
        return dict(declared)
    types = {"null" if value is None else JSON_TYPES[type(value)] for value in values}
    return {"type": next(iter(types)) if len(types) == 1 else sorted(types)}
