"""What cannot be a tool is refused at start, with the reason."""

from typing import Any

import pytest

from nemo_gym import SessionState, Tool, tool
from nemo_gym.errors import SignatureError
from nemo_gym.servers.tools.tool import RESERVED_NAMES, is_callable_name
from nemo_gym.testing import make_server
from tests.servers.tools.shop import LENGTHS, Basket, Graded


@pytest.mark.parametrize(
    ("schema", "message"),
    [({"type": "nonsense"}, "not a JSON Schema"), ({"properties": {"a": 3}}, "not a JSON Schema")],
)
def test_a_schema_from_data_that_is_none_is_refused_at_start(schema, message):
    async def method(arguments: dict[str, Any]) -> str:
        return ""

    with pytest.raises(SignatureError, match=message):
        Tool.of(method, name="x", parameters=schema)


def test_a_schema_from_data_needs_a_method_with_one_parameter():
    async def method(metres: float, feet: float) -> str:
        return ""

    with pytest.raises(SignatureError, match="as one parameter, a dict"):
        Tool.of(method, name="x", parameters=LENGTHS)


async def returns_text(self) -> str:
    """Return."""
    return ""


def server_with(method, attribute="act", **options):
    return make_server(type("Wrong", (Graded,), {"__module__": __name__, attribute: tool(**options)(method)}))


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_route_of_the_server_cannot_be_a_tool(name):
    with pytest.raises(SignatureError, match=rf"'{name}' is a route of every resources server.*@tool\(name="):
        server_with(returns_text, name=name).setup_webserver()


@pytest.mark.parametrize("name", ["a b", "a/b", "../x", "ä", "x" * 65, "verify\n"])
def test_a_tools_name_is_one_word(name):
    assert not is_callable_name(name)
    with pytest.raises(SignatureError, match="not a tool's name"):
        server_with(returns_text, name=name).setup_webserver()


@pytest.mark.parametrize("method", ["startup", "sessions", "compute_metrics"])
def test_a_tool_does_not_take_the_place_of_the_servers_own_method(method):
    with pytest.raises(SignatureError, match=rf"the place of \w+\.{method}; .*@tool\(name=\"{method}\"\)"):
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


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(SignatureError, match="Twice has two tools called 'act'"):
        make_server(Twice).setup_webserver()


class NoSchema:
    """Pydantic knows nothing of it."""


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


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (untyped, "give the argument 'amount' a type"),
        (any_number, r"'\*amounts: int' has no schema; name each argument"),
        (any_name, r"'\*\*amounts: int' has no schema; name each argument"),
        (positional, "remove the '/' behind 'amount'"),
        (no_schema, "the arguments have no JSON Schema"),
        (needy_state, r"SessionState Needy, .* give every field of it a default \(count\)"),
        (optional_state, "type it as the SessionState alone"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_start_with_the_reason(method, message):
    with pytest.raises(SignatureError, match=message) as refused:
        server_with(method).setup_webserver()
    assert method.__name__ in str(refused.value)
