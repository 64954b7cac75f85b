"""State and request are filled in for every kind of method signature."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from nemo_gym import BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
from nemo_gym.errors import SignatureError
from nemo_gym.servers.tools.handlers import Handler
from nemo_gym.testing import make_server, reply
from tests.each_case import each_case


class Seen(SessionState):
    names: list[str] = []  # noqa: RUF012


class Other(SessionState):
    count: int = 0


class VerifyRequest(BaseVerifyRequest):
    bonus: float = 0.0


def body(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": []}, "response": reply("Done.").model_dump(mode="json"), **fields}


def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a method in a plain function, as authors' decorators do."""

    @functools.wraps(method)
    def wrapper(*arguments: Any, **named: Any) -> Awaitable[Any]:
        return method(*arguments, **named)

    return wrapper


class Ways(SimpleResourcesServer):
    @tool
    async def seen(self, seen: Annotated[Seen, "this rollout's"], name: str) -> list[str]:
        """The state may come first and be `Annotated`."""
        seen.names.append(name)
        return seen.names

    @tool
    def two_states(self, one: Seen, name: str, other: Other, request: Request) -> str:
        """Two states and the request."""
        other.count += 1
        return f"{name} {request.url.path} {len(one.names)} {other.count}"

    @tool
    @counted
    async def decorated(self, name: str, seen: Seen) -> str:
        """Decorated by the author."""
        return f"{name} {len(seen.names)}"

    @tool
    async def named_like_ours(self, arguments: str, store: int, handler: str, nemo_gym: str) -> str:
        """Arguments with the names of our own variables."""
        return f"{arguments} {store} {handler} {nemo_gym}"

    async def verify(self, body: VerifyRequest) -> float:
        return 1.0


class BodyOnly(Ways):
    async def verify(self, body: VerifyRequest) -> float:
        return body.bonus


class RequestFirst(Ways):
    async def verify(self, request: Request, body: VerifyRequest) -> float:
        return body.bonus + float(request.url.path == "/verify")


class OtherNames(Ways):
    async def verify(self, graded: VerifyRequest, http: Request, seen: Seen) -> float:
        return graded.bonus + float(http.url.path == "/verify") + len(seen.names)


class Threaded(Ways):
    def verify(self, body: VerifyRequest, seen: Seen) -> float:  # type: ignore[override]
        return body.bonus + len(seen.names)


@each_case(("cls", "reward"), [(BodyOnly, 0.5), (RequestFirst, 1.5), (OtherNames, 3.5), (Threaded, 2.5)])
def test_verify_accepts_each_signature(cls: type[Ways], reward: float) -> None:
    client = TestClient(make_server(cls).setup_webserver())
    for name in ("a", "b"):
        client.post("/seen", json={"name": name})
    assert client.post("/verify", json=body(bonus=0.5)).json()["reward"] == reward


def test_state_and_request_are_filled_in_anywhere() -> None:
    client = TestClient(make_server(Ways).setup_webserver())
    assert client.post("/seen", json={"name": "a"}).json() == ["a"]
    assert client.post("/seen", json={"name": "b"}).json() == ["a", "b"]
    assert client.post("/two_states", json={"name": "n"}).text == "n /two_states 2 1"
    assert client.post("/two_states", json={"name": "n"}).text == "n /two_states 2 2"


def test_tools_may_have_an_authors_decorator() -> None:
    client = TestClient(make_server(Ways).setup_webserver())
    assert client.post("/decorated", json={"name": "x"}).text == "x 0"


def test_arguments_may_have_the_names_of_internals() -> None:
    client = TestClient(make_server(Ways).setup_webserver())
    response = client.post("/named_like_ours", json={"arguments": "a", "store": 1, "handler": "h", "nemo_gym": "n"})
    assert response.text == "a 1 h n"


def test_string_annotations_are_resolved_in_the_methods_module() -> None:
    handler = Handler.of(make_server(OtherNames).verify)
    assert (handler.states, handler.request_parameter) == ({"seen": Seen}, "http")
    assert [parameter.name for parameter in handler.open_parameters] == ["graded"]


class Needy(SessionState):
    limit: int
    count: int = 0


class NeedySeed(Ways):
    async def seed_session(self, body: BaseVerifyRequest, needy: Needy) -> None:  # type: ignore[override]
        needy.count = 1


class NeedyVerify(Ways):
    async def verify(self, body: VerifyRequest, needy: Needy) -> float:
        return 1.0


@pytest.mark.parametrize("cls", [NeedySeed, NeedyVerify])
def test_state_without_defaults_is_rejected_at_start(cls: type[Ways]) -> None:
    with pytest.raises(SignatureError, match=rf"{cls.__name__}.*'needy' is the SessionState Needy.*default \(limit\)"):
        make_server(cls).setup_webserver()
