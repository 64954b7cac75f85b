"""A session belongs to the life of the process that began it: its state is never made up anew in a later one."""

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
        """Begin to count again, in the midst of a rollout."""
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
    """A caller of one life of the server's process."""
    server = make_server(cls, name="arena", **settings)
    context_of(server).cookie_secret, context_of(server).life = SECRET, mark
    app = server.setup_webserver()
    expose_if_asked(server, app)
    server.setup_exception_middleware(app)
    return TestClient(app)


@pytest.fixture
def second():
    """A caller that began its rollout in the server's first life, and made a tool call there; now it is the second."""
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
def test_a_call_that_needs_the_state_of_an_earlier_life_is_told_that_the_rollout_is_lost(second, path, body):
    told = second.post(path, json=body)
    assert told.status_code == 503
    problem = told.json()
    assert (problem["failure_class"], problem["tier"], problem["server"]) == ("lost", "environment", "arena")
    assert "started again" in problem["detail"]
    # With a fresh session the caller would go on.
    assert "set-cookie" not in told.headers


def test_it_is_told_so_however_often_it_asks(second):
    assert [second.post("/add", json={}).status_code for _ in range(3)] == [503] * 3
    assert second.post("/verify", json=ANSWERED).status_code == 503


def test_a_rollout_that_begins_anew_is_as_good_as_any(second):
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
def test_what_needs_no_state_is_answered_and_makes_a_lost_session_no_better(second, method, path, body):
    assert second.request(method, path, json=body).status_code == 200
    assert second.post("/verify", json=ANSWERED).status_code == 503


def test_a_game_begins_anew_with_its_reset():
    second = in_second_life(Game)
    assert second.post("/step", json=ANSWERED).json()["failure_class"] == "lost"
    assert second.post("/reset", json=ANSWERED).json()["observation"] == "begin"


def test_a_tool_that_is_called_reset_begins_no_rollout():
    assert in_second_life(ResettableServer).post("/reset", json={}).json()["failure_class"] == "lost"


def test_a_model_server_goes_on_with_a_fresh_session():
    first, second = life_of(Model, "first"), life_of(Model, "second")
    before = first.post("/whose").json()
    second.cookies = first.cookies
    after = second.post("/whose")
    assert after.status_code == 200
    assert after.json() != before
    # From then on it is the same session again.
    assert second.post("/whose").json() == after.json()


@pytest.mark.parametrize("mark", ["second", None])
def test_a_session_that_began_in_no_life_is_of_any(mark):
    name, _, value = session_cookie("CounterServer___arena", SECRET, "forged").partition("=")
    client = life_of(CounterServer, mark)
    client.cookies.set(name, value)
    assert client.post("/whose").json() == "forged"
    assert client.post("/add", json={}).text == "1"


def test_in_one_life_a_session_stays_what_it_was():
    first, again = life_of(CounterServer, "first"), life_of(CounterServer, "first")
    known = first.post("/whose").json()
    again.cookies = first.cookies
    assert again.post("/whose").json() == known


def test_where_lives_do_not_matter_sessions_bear_no_mark():
    answer = life_of(CounterServer, None).post("/whose")
    cookie = SimpleCookie(answer.headers["set-cookie"])["CounterServer___arena"].value
    assert cookie.partition(".")[0] == _packed(answer.json())


def _packed(session_id):
    return session_cookie("name", SECRET, session_id).partition("=")[2].partition(".")[0]


@pytest.mark.parametrize("allowed", [None, frozenset({"add"})])
@pytest.mark.parametrize(
    ("issued_in", "read_in", "is_lost"),
    [("first", "first", False), ("first", "second", True), (None, None, False)],
)
def test_a_token_for_mcp_is_of_the_life_that_issued_it(allowed, issued_in, read_in, is_lost):
    session = McpSession("an@id", allowed)
    read = SessionTokens(SECRET, read_in).read(SessionTokens(SECRET, issued_in).issue(session))
    assert read == McpSession("an@id", allowed, is_lost=is_lost)


def test_a_tool_over_mcp_tells_its_agent_that_the_rollout_is_lost():
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
