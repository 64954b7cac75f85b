"""Arguments of a tool, checked against the types of its signature or against a JSON Schema from data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nemo_gym.errors import NemoGymError, SignatureError
from nemo_gym.jsonl import JsonObject
from nemo_gym.servers.tools.json_schema import without_titles

MAX_PROBLEMS = 10
"""The maximum number of problems in a message. Further ones are only counted, to save the model's context."""


class WrongArguments(NemoGymError):
    """Arguments that the tool does not accept. The message is for the model."""


class Arguments(Protocol):
    """The interface of a tool's arguments: their JSON Schema, and the check of a call's arguments."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that the model receives."""

    def read(self, given: Mapping[str, object]) -> dict[str, object]:
        """Check the arguments and return the values of the method's parameters. Raises `WrongArguments`."""


class TypedArguments:
    """Arguments that a method's signature declares: one for each typed parameter."""

    def __init__(self, name: str, where: str, parameters: Sequence[inspect.Parameter]) -> None:
        """Raise `SignatureError` for a parameter without a JSON Schema. `where` names the method in the message."""
        fields: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise SignatureError(f"{where}: '{parameter}' does not have a schema. Declare each argument by name")
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise SignatureError(f"{where}: arguments are passed by name. Remove the '/' after '{parameter.name}'")
            if parameter.annotation is inspect.Parameter.empty:
                raise SignatureError(f"{where}: the argument '{parameter.name}' does not have a type. Annotate it")
            # Add a prefix, because names such as `schema` or `_id` clash with pydantic's own names.
            fields[f"arg_{parameter.name}"] = _field_of(parameter)
        self._names = [parameter.name for parameter in parameters]
        try:
            self._model: type[BaseModel] = create_model(
                f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields
            )
            self.schema = without_titles(self._model.model_json_schema())
        except PydanticUserError as error:
            raise SignatureError(f"{where}: cannot create a JSON Schema of the arguments: {error.message}") from error
        self.schema.setdefault("properties", {})
        self.schema.setdefault("required", [])

    def read(self, given: Mapping[str, object]) -> dict[str, object]:
        try:
            checked = self._model.model_validate(given)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            shown = [_describe(problem) for problem in problems[:MAX_PROBLEMS]]
            raise WrongArguments(_listed(shown, of=len(problems))) from error
        return {name: getattr(checked, f"arg_{name}") for name in self._names}


class SchemaArguments:
    """Arguments that a JSON Schema declares. The method receives all of them as one mapping."""

    def __init__(self, where: str, parameters: Sequence[inspect.Parameter], schema: Mapping[str, object]) -> None:
        """Raise `SignatureError` if the method does not take exactly one parameter, or if the schema is invalid."""
        if len(parameters) != 1:
            raise SignatureError(
                f"{where}: a tool that is created from a JSON Schema must take exactly one parameter, a dict of its "
                "arguments"
            )
        self.schema: JsonObject = {"properties": {}, "required": [], **schema}
        self._parameter = parameters[0].name
        self._errors = _validator(where, self.schema)

    def read(self, given: Mapping[str, object]) -> dict[str, object]:
        problems = self._errors(given)
        if problems:
            raise WrongArguments(_listed(problems[:MAX_PROBLEMS], of=len(problems)))
        return {self._parameter: given}


def _validator(where: str, schema: JsonObject) -> Callable[[Mapping[str, object]], list[str]]:
    # Import this here, because few servers need it: those that create tools from a JSON Schema.
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise SignatureError(f"{where}: invalid JSON Schema: {str(error).splitlines()[0]}") from error

    def errors(given: Mapping[str, object]) -> list[str]:
        found = []
        for each in validator.iter_errors(given):
            place = ".".join(str(part) for part in each.instance_path)
            message = f"{each.message:.200}"
            found.append(f"'{place}': {message}" if place else message)
        return found

    return errors


def _listed(problems: Sequence[str], *, of: int) -> str:
    hidden = of - len(problems)
    return "; ".join(problems) + (f"; and {hidden} more" if hidden else "")


def _field_of(parameter: inspect.Parameter) -> tuple[object, FieldInfo]:
    if isinstance(parameter.default, FieldInfo):
        return Annotated[parameter.annotation, parameter.default], Field(alias=parameter.name)
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    return parameter.annotation, Field(default, alias=parameter.name)


def _describe(problem: ErrorDetails) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"'{place}' is not an argument"
    if problem["type"] == "missing":
        return f"'{place}' is missing"
    return f"'{place}': {problem['msg']} (found {problem['input']!r:.80})"
