"""A restart of the process loses the state of its sessions, and a lost state is never recreated."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from nemo_gym import (
    SESSION_ID_KEY,
    BaseVerifyRequest,
    SessionState,
    SimpleResourcesServer,
    SimpleResponsesAPIModel,
    SteppedResourcesServer,
    tool,
)
from nemo_gym.servers.base import context_of
from nemo_gym.servers.mcp.endpoint import expose_if_asked
from nemo_gym.servers.mcp.session import McpSession, SessionTokens
from nemo_gym.testing import make_server, reply
from nemo_gym.web.session_cookies import session_cookie
from tests.each_case import each_case

SECRET = "s" * 64
ROW = {"responses_create_params": {"input": []}}
ANSWERED = {**ROW, "response": reply("Done.").model_dump(mode="json")}
METRICS = {"verify_responses": []}


class Counter(SessionState):
    count: int = 0


class CounterServer(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/whose")(whose)
        return app

    @tool
    async def add(self, counter: Counter) -> int:
        """Add one."""
        counter.count += 1
        return counter.count

    async def verify(self, body: BaseVerifyRequest, counter: Counter) -> float:
        return float(counter.count)


class ResettableServer(CounterServer):
    @tool
    async def reset(self, counter: Counter) -> str:
        """Reset the count during a rollout."""
        counter.count = 0
        return "0"


class Game(SteppedResourcesServer):
    async def reset(self, body: BaseVerifyRequest, counter: Counter) -> str:
        counter.count = 1
        return "begin"

    async def step(self, body: BaseVerifyRequest) -> None:
        raise NotImplementedError


class Model(SimpleResponsesAPIModel):
    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/whose")(whose)
        return app

    async def responses(self, body: dict) -> None:
        raise NotImplementedError

    async def chat_completions(self, body: dict) -> None:
        raise NotImplementedError


async def whose(request: Request) -> str:
    return request.session[SESSION_ID_KEY]


def life_of(cls, mark, **settings):
    """Return a client of the server after the process start `mark`."""
    server = make_server(cls, name="arena", **settings)
    context_of(server).cookie_secret, context_of(server).life = SECRET, mark
    app = server.setup_webserver()
    expose_if_asked(server, app)
    server.setup_exception_middleware(app)
    return TestClient(app)


@pytest.fixture
def second():
    """A client that began its rollout before the server's restart."""
    return in_second_life(CounterServer)


def in_second_life(cls):
    first, second = life_of(cls, "first"), life_of(cls, "second")
    begin = "/reset" if cls is Game else "/seed_session"
    assert first.post(begin, json=ROW if cls is not Game else ANSWERED).status_code == 200
    second.cookies = first.cookies
    return second


@pytest.mark.parametrize(
    ("path", "body"), [("/add", {}), ("/verify", ANSWERED), ("/whose", None), ("/close_session", None)]
)
def test_call_for_lost_state_reports_a_lost_rollout(second, path, body):
    answer = second.post(path, json=body)
    assert answer.status_code == 503
    problem = answer.json()
    assert (problem["failure_class"], problem["tier"], problem["server"]) == ("lost", "environment", "arena")
    assert "restarted" in problem["detail"]
    # With a new session, the caller would continue.
    assert "set-cookie" not in answer.headers


def test_every_further_call_is_rejected_too(second):
    assert [second.post("/add", json={}).status_code for _ in range(3)] == [503] * 3
    assert second.post("/verify", json=ANSWERED).status_code == 503


def test_rollout_may_begin_again_after_a_restart(second):
    assert second.post("/seed_session", json=ROW).status_code == 200
    assert second.post("/add", json={}).text == "1"
    assert second.post("/verify", json=ANSWERED).json()["reward"] == 1.0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/tools", None),
        ("GET", "/reverify_mode", None),
        ("POST", "/aggregate_metrics", METRICS),
    ],
)
def test_stateless_calls_succeed_without_reviving_the_session(second, method, path, body):
    assert second.request(method, path, json=body).status_code == 200
    assert second.post("/verify", json=ANSWERED).status_code == 503


def test_reset_begins_a_new_game_after_a_restart():
    second = in_second_life(Game)
    assert second.post("/step", json=ANSWERED).json()["failure_class"] == "lost"
    assert second.post("/reset", json=ANSWERED).json()["observation"] == "begin"


def test_tool_called_reset_does_not_begin_a_rollout():
    assert in_second_life(ResettableServer).post("/reset", json={}).json()["failure_class"] == "lost"


def test_model_server_continues_with_a_new_session():
    first, second = life_of(Model, "first"), life_of(Model, "second")
    before = first.post("/whose").json()
    second.cookies = first.cookies
    after = second.post("/whose")
    assert after.status_code == 200
    assert after.json() != before
    # Further calls use the new session.
    assert second.post("/whose").json() == after.json()


@pytest.mark.parametrize("mark", ["second", None])
def test_session_without_mark_survives_restarts(mark):
    name, _, value = session_cookie("CounterServer___arena", SECRET, "forged").partition("=")
    client = life_of(CounterServer, mark)
    client.cookies.set(name, value)
    assert client.post("/whose").json() == "forged"
    assert client.post("/add", json={}).text == "1"


def test_session_stays_the_same_without_a_restart():
    first, again = life_of(CounterServer, "first"), life_of(CounterServer, "first")
    known = first.post("/whose").json()
    again.cookies = first.cookies
    assert again.post("/whose").json() == known


def test_sessions_have_no_mark_if_restarts_are_harmless():
    answer = life_of(CounterServer, None).post("/whose")
    cookie = SimpleCookie(answer.headers["set-cookie"])["CounterServer___arena"].value
    assert cookie.partition(".")[0] == _packed(answer.json())


def _packed(session_id):
    return session_cookie("name", SECRET, session_id).partition("=")[2].partition(".")[0]


@each_case("allowed", [None, frozenset({"add"})])
@each_case(
    ("issued_in", "read_in", "is_lost"),
    [("first", "first", False), ("first", "second", True), (None, None, False)],
)
def test_mcp_token_is_lost_after_a_restart(allowed, issued_in, read_in, is_lost):
    session = McpSession("an@id", allowed)
    read = SessionTokens(SECRET, read_in).read(SessionTokens(SECRET, issued_in).issue(session))
    assert read == McpSession("an@id", allowed, is_lost=is_lost)


def test_mcp_tool_reports_a_lost_rollout():
    pytest.importorskip("mcp_types")
    first, second = exposed_over_mcp("first"), exposed_over_mcp("second")
    headers = first.post("/seed_session", json=ROW).json()["mcp"]["headers"]
    headers["accept"] = "application/json, text/event-stream"
    called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
    results = [life.post("/mcp", json=called, headers=headers).json()["result"] for life in (first, second)]
    assert [result["isError"] for result in results] == [False, True]
    assert results[0]["content"][0]["text"] == "1"
    problem = results[1]["_meta"]["nemo_gym/problem"]
    assert (problem["failure_class"], problem["tier"], problem["server"]) == ("lost", "environment", "arena")


def exposed_over_mcp(mark):
    return life_of(CounterServer, mark, expose_tools_over_mcp=True)
