"""Invalid tools are rejected at startup, with the reason."""

from typing import Any

import pytest

from nemo_gym import SessionState, Tool, tool
from nemo_gym.errors import SignatureError
from nemo_gym.servers.tools.tool import RESERVED_NAMES, is_callable_name
from nemo_gym.testing import make_server
from tests.each_case import each_case
from tests.servers.tools.shop import LENGTHS, Basket, Graded


@pytest.mark.parametrize(
    ("schema", "message"),
    [({"type": "nonsense"}, "invalid JSON Schema"), ({"properties": {"a": 3}}, "invalid JSON Schema")],
)
def test_invalid_schema_from_data_is_rejected_at_start(schema, message):
    async def method(arguments: dict[str, Any]) -> str:
        return ""

    with pytest.raises(SignatureError, match=message):
        Tool.of(method, name="x", parameters=schema)


def test_schema_from_data_needs_exactly_one_parameter():
    async def method(metres: float, feet: float) -> str:
        return ""

    with pytest.raises(SignatureError, match="exactly one parameter, a dict"):
        Tool.of(method, name="x", parameters=LENGTHS)


async def returns_text(self) -> str:
    """Return."""
    return ""


def server_with(method, attribute="act", **options):
    return make_server(type("Wrong", (Graded,), {"__module__": __name__, attribute: tool(**options)(method)}))


@each_case("name", sorted(RESERVED_NAMES))
def test_reserved_route_cannot_be_a_tool(name):
    with pytest.raises(SignatureError, match=rf"'{name}' is a route of every resources server.*@tool\(name="):
        server_with(returns_text, name=name).setup_webserver()


@each_case("name", ["a b", "a/b", "../x", "ä", "x" * 65, "verify\n"])
def test_invalid_tool_name_is_rejected(name):
    assert not is_callable_name(name)
    with pytest.raises(SignatureError, match="not a valid tool name"):
        server_with(returns_text, name=name).setup_webserver()


@each_case("method", ["startup", "sessions", "compute_metrics"])
def test_tool_cannot_override_a_server_method(method):
    with pytest.raises(SignatureError, match=rf"would override \w+\.{method}\. .*@tool\(name=\"{method}\"\)"):
        server_with(returns_text, method).tools()


class Twice(Graded):
    @tool(name="act")
    async def one(self) -> str:
        """One."""
        return ""

    @tool(name="act")
    async def two(self) -> str:
        """Two."""
        return ""


def test_two_tools_of_one_name_are_rejected():
    with pytest.raises(SignatureError, match="Twice has two tools called 'act'"):
        make_server(Twice).setup_webserver()


class NoSchema:
    """A class without a JSON Schema."""


class Needy(SessionState):
    count: int
    limit: int = 3


async def untyped(self, amount) -> str: ...


async def any_number(self, *amounts: int) -> str: ...


async def any_name(self, **amounts: int) -> str: ...


async def positional(self, amount: int, /) -> str: ...


async def no_schema(self, thing: NoSchema) -> str: ...


async def needy_state(self, state: Needy) -> str: ...


async def optional_state(self, basket: Basket | None = None) -> str: ...


@each_case(
    ("method", "message"),
    [
        (untyped, "the argument 'amount' does not have a type"),
        (any_number, r"'\*amounts: int' does not have a schema"),
        (any_name, r"'\*\*amounts: int' does not have a schema"),
        (positional, "Remove the '/' after 'amount'"),
        (no_schema, "cannot create a JSON Schema of the arguments"),
        (needy_state, r"SessionState Needy, .* Give each of its fields a default \(count\)"),
        (optional_state, "Annotate it with the SessionState alone"),
    ],
)
def test_invalid_tool_is_rejected_with_the_reason(method, message):
    with pytest.raises(SignatureError, match=message) as rejected:
        server_with(method).setup_webserver()
    assert method.__name__ in str(rejected.value)
