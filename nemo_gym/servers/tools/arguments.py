"""What a tool may be called with: checked by the types of its signature, or by a JSON Schema from data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from nemo_gym.errors import NemoGymError, SignatureError
from nemo_gym.servers.tools.json_schema import without_titles

PROBLEMS_TOLD = 10
"""A long list of wrong entries is not held against the model's context one by one."""


class WrongArguments(NemoGymError):
    """A call's arguments are not what the tool expects; the message is for the model."""


class Arguments(Protocol):
    """What one tool may be called with."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema that the model is told."""

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values for the method, by parameter. Raises `WrongArguments`."""


class TypedArguments:
    """Arguments from a signature: one for each typed parameter."""

    def __init__(self, name: str, where: str, parameters: Sequence[inspect.Parameter]) -> None:
        """Raises `SignatureError` for a parameter that has no JSON Schema; `where` names the method in it."""
        fields: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise SignatureError(f"{where}: '{parameter}' has no schema; name each argument")
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise SignatureError(f"{where}: arguments come by name; remove the '/' behind '{parameter.name}'")
            if parameter.annotation is inspect.Parameter.empty:
                raise SignatureError(f"{where}: give the argument '{parameter.name}' a type")
            # Declared under a safe name: an argument called `schema` or `_id` must not meet pydantic's own.
            fields[f"arg_{parameter.name}"] = _field_of(parameter)
        self._names = [parameter.name for parameter in parameters]
        try:
            self._model: type[BaseModel] = create_model(
                f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields
            )
            self.schema: dict[str, Any] = without_titles(self._model.model_json_schema())
        except PydanticUserError as error:
            raise SignatureError(f"{where}: the arguments have no JSON Schema: {error.message}") from error
        self.schema.setdefault("properties", {})
        self.schema.setdefault("required", [])

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """See `Arguments.read`."""
        try:
            checked = self._model.model_validate(given)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            told = [_explain(problem) for problem in problems[:PROBLEMS_TOLD]]
            raise WrongArguments(_listed(told, of=len(problems))) from error
        return {name: getattr(checked, f"arg_{name}") for name in self._names}


class SchemaArguments:
    """Arguments by a JSON Schema: the method receives all of them as one mapping."""

    def __init__(self, where: str, parameters: Sequence[inspect.Parameter], schema: Mapping[str, Any]) -> None:
        """Raises `SignatureError` where the method does not take one mapping, or the schema is none."""
        if len(parameters) != 1:
            raise SignatureError(
                f"{where}: a tool with a schema from data takes its arguments as one parameter, a dict"
            )
        self.schema = {"properties": {}, "required": [], **schema}
        self._parameter = parameters[0].name
        self._errors = _validator(where, self.schema)

    def read(self, given: dict[str, Any]) -> dict[str, Any]:
        """See `Arguments.read`."""
        problems = self._errors(given)
        if problems:
            raise WrongArguments(_listed(problems[:PROBLEMS_TOLD], of=len(problems)))
        return {self._parameter: given}


def _validator(where: str, schema: dict[str, Any]) -> Callable[[dict[str, Any]], list[str]]:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise SignatureError(
            f"{where}: a schema from data is checked by jsonschema-rs, which is not installed: "
            "pip install 'nemo-gym[schema]'"
        ) from error
    try:
        validator = jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise SignatureError(f"{where}: not a JSON Schema: {str(error).splitlines()[0]}") from error

    def errors(given: dict[str, Any]) -> list[str]:
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


def _field_of(parameter: inspect.Parameter) -> tuple[Any, Any]:
    if isinstance(parameter.default, FieldInfo):
        return Annotated[parameter.annotation, parameter.default], Field(alias=parameter.name)
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    return parameter.annotation, Field(default, alias=parameter.name)


def _explain(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"'{place}' is not an argument"
    if problem["type"] == "missing":
        return f"'{place}' is missing"
    return f"'{place}': {problem['msg']} (found {problem['input']!r:.80})"
