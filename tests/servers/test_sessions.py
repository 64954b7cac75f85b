"""A rollout's state is found by its cookie, isolated, and dropped with the rollout."""

import asyncio
import logging
import threading
from uuid import UUID

import itsdangerous
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field
from starlette.middleware.sessions import SessionMiddleware as StarletteSessions

from nemo_gym import (
    SESSION_ID_KEY,
    BaseSeedSessionRequest,
    BaseVerifyRequest,
    EnvironmentFailed,
    SessionState,
    SimpleResourcesServer,
    tool,
)
from nemo_gym.servers.base import context_of
from nemo_gym.servers.sessions import SessionStore
from nemo_gym.testing import make_server, reply, rollout, serving
from tests.each_case import each_case
from tests.waiting import async_until

pytestmark = pytest.mark.bare

closings: dict[str, list[int]] = {}
"""Records of the states that were closed, by label."""


class Counter(SessionState):
    count: int = 0
    label: str = ""

    async def close(self) -> None:
        await asyncio.sleep(0)
        closings.setdefault(self.label, []).append(self.count)


class Notes(SessionState):
    lines: list[str] = Field(default_factory=list)
    stop: threading.Event = Field(default_factory=threading.Event)

    def close(self) -> None:
        closings.setdefault("notes", []).append(len(self.lines))


class SeedRequest(BaseSeedSessionRequest):
    label: str = ""
    fails: bool = False


class CounterServer(SimpleResourcesServer):
    async def seed_session(self, body: SeedRequest, counter: Counter) -> None:
        counter.label = body.label
        if body.fails:
            raise RuntimeError("no room")

    @tool
    async def add(self, amount: int, counter: Counter) -> int:
        """Add."""
        before = counter.count
        await asyncio.sleep(0)
        counter.count = before + amount
        return counter.count

    @tool
    def note(self, line: str, notes: Notes, counter: Counter) -> str:
        """Write down a line with the count."""
        notes.lines.append(f"{line}{counter.count}")
        return " ".join(notes.lines)

    @tool
    async def outlast(self, counter: Counter) -> int:
        """Take longer than idle sessions are kept."""
        assert await drop_all_idle(self) == 0
        counter.count += 1
        return counter.count

    async def verify(self, body: BaseVerifyRequest, counter: Counter) -> float:
        return float(counter.count)


class PlainServer(SimpleResourcesServer):
    """Keeps its own values in the session, as folders without `SessionState` do."""

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/session")(self.show)
        app.post("/push")(self.push)
        app.post("/clear")(self.clear)
        return app

    async def show(self, request: Request) -> dict:
        return dict(request.session)

    async def push(self, request: Request) -> dict:
        request.session.setdefault("stack", []).append(len(request.session.get("stack", [])))
        return dict(request.session)

    async def clear(self, request: Request) -> None:
        request.session.clear()


@pytest.fixture(autouse=True)
def label(request):
    closings.clear()
    return request.node.name


@pytest.fixture
def plain():
    with TestClient(make_server(PlainServer).setup_webserver()) as client:
        yield client


def body(**fields):
    return {"responses_create_params": {"input": []}, "response": reply("Done.").model_dump(mode="json"), **fields}


async def test_interleaved_rollouts_have_separate_states():
    server = make_server(CounterServer)
    async with rollout(server) as one, rollout(server) as other:
        assert await one.call("add", amount=1) == "1"
        assert await other.call("add", amount=10) == "10"
        assert await one.call("add", amount=1) == "2"
        assert await other.call("note", line="at ") == "at 10"
        assert await one.call("note", line="at ") == "at 2"
        assert (await one.verify()).reward == 2.0
        assert await other.call("add", amount=10) == "20"
        assert (await other.verify()).reward == 20.0


async def test_verify_drops_and_closes_the_state(label):
    server = make_server(CounterServer)
    async with rollout(server, label=label) as attempt:
        await attempt.call("add", amount=3)
        await attempt.call("note", line="x")
        assert (len(server.sessions), closings) == (1, {})
        await attempt.verify()
        assert len(server.sessions) == 0
        # A plain `def close` is called too.
        assert closings == {label: [3], "notes": [1]}


async def test_close_session_drops_the_state(label):
    server = make_server(CounterServer)
    async with serving(server) as client:
        await client.post("/seed_session", json=body(label=label))
        assert (await client.post("/close_session")).json() == {"closed": True}
        assert (len(server.sessions), closings) == (0, {label: [0]})
        assert (await client.post("/close_session")).json() == {"closed": False}


class CloseRequest(BaseModel):
    reason: str = "none"


class ClosingServer(CounterServer):
    async def close_session(self, body: CloseRequest, counter: Counter) -> dict[str, object]:
        if body.reason == "broken":
            raise RuntimeError("it does not close")
        return {"closed": True, "reason": body.reason, "count": counter.count}


@pytest.mark.parametrize(("sent", "reason"), [({}, "none"), ({"json": {"reason": "late"}}, "late")])
async def test_own_close_session_may_take_an_optional_body(label, sent, reason):
    server = make_server(ClosingServer)
    async with serving(server) as client:
        await client.post("/seed_session", json=body(label=label))
        assert (await client.post("/close_session", **sent)).json() == {"closed": True, "reason": reason, "count": 0}
        assert (len(server.sessions), closings) == (0, {label: [0]})


async def test_failing_close_session_still_drops_the_state(label):
    server = make_server(ClosingServer)
    async with serving(server) as client:
        await client.post("/seed_session", json=body(label=label))
        with pytest.raises(RuntimeError, match="it does not close"):
            await client.post("/close_session", json={"reason": "broken"})
        assert (len(server.sessions), closings) == (0, {label: [0]})


async def test_new_rollout_in_an_old_session_starts_fresh(label):
    server = make_server(CounterServer)
    async with serving(server) as client:
        await client.post("/seed_session", json=body(label=label))
        await client.post("/add", json={"amount": 7})
        await client.post("/seed_session", json=body(label="next"))
        assert closings == {label: [7]}
        assert (await client.post("/add", json={"amount": 1})).text == "1"


async def test_failed_seed_leaves_no_state(label):
    server = make_server(CounterServer)
    async with serving(server) as client:
        with pytest.raises(RuntimeError, match="no room"):
            await client.post("/seed_session", json=body(label=label, fails=True))
        assert (len(server.sessions), closings) == (0, {label: [0]})


async def test_shutdown_closes_states_before_the_servers_own_resources(label):
    class WithPool(CounterServer):
        async def startup(self) -> None:
            closings["pool"] = []

        async def aclose(self) -> None:
            closings["pool"] = list(closings[label])

    async with serving(make_server(WithPool)) as client:
        await client.post("/seed_session", json=body(label=label))
        await client.post("/add", json={"amount": 2})
    assert closings == {label: [2], "pool": [2]}


async def drop_all_idle(server: SimpleResourcesServer) -> int:
    """Drop unused sessions now. With a short `session_idle_s`, a busy machine would drop some between two calls."""
    idle_s, server.sessions.idle_s = server.sessions.idle_s, 0.0
    dropped = await server.sessions.drop_idle()
    server.sessions.idle_s = idle_s
    return dropped


async def test_idle_states_are_dropped_regularly(label):
    server = make_server(CounterServer, session_idle_s=0.02)
    async with serving(server) as client:
        await client.post("/seed_session", json=body(label=label))
        await async_until(lambda: label in closings)


async def test_idle_state_is_dropped_and_not_recreated(label):
    server = make_server(CounterServer, session_idle_s=500)
    async with serving(server) as client:
        await client.post("/seed_session", json=body(label=label))
        await client.post("/add", json={"amount": 7})
        assert (await drop_all_idle(server), len(server.sessions)) == (1, 0)
        assert closings == {label: [7]}
        # With a new counter, the model would be graded for state that the server dropped.
        for path, arguments in (("/add", {"amount": 1}), ("/verify", body())):
            with pytest.raises(EnvironmentFailed, match=r"Counter was dropped .* 500 s\. Increase session_idle_s"):
                await client.post(path, json=arguments)
        await client.post("/seed_session", json=body())
        assert (await client.post("/add", json={"amount": 1})).text == "1"


async def test_state_is_not_idle_during_a_call():
    async with rollout(make_server(CounterServer)) as attempt:
        assert await attempt.call("outlast") == "1"
        assert (await attempt.verify()).reward == 1.0


async def test_new_rollout_is_not_dropped_with_its_idle_session():
    store = SessionStore(idle_s=0.1)

    class Slow(SessionState):
        async def close(self) -> None:
            # Begin another rollout in the session while this state is closed.
            await store.drop("again")
            store.get("again", Counter).count = 3

    store.get("slow", Slow)
    store.get("again", Counter)
    await asyncio.sleep(0.15)
    assert await store.drop_idle() == 1
    assert store.get("again", Counter).count == 3


class Stubborn(SessionState):
    async def close(self) -> None:
        raise RuntimeError("will not close")


async def test_failing_close_is_logged_and_others_still_close(label, caplog):
    store = SessionStore(idle_s=60)
    store.get("s", Stubborn)
    store.get("s", Counter).label = label
    with caplog.at_level(logging.ERROR):
        assert await store.drop("s")
    assert closings == {label: [0]}
    assert "closing Stubborn of session s failed" in caplog.text


COOKIE = "PlainServer___servers"


def test_every_response_sets_the_cookie(plain):
    for path, status in (("/session", 200), ("/no_such_route", 404), ("/verify", 422), ("/reverify_mode", 405)):
        cookie = plain.post(path, json={}).headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}="), (path, status)
        assert "; path=/; " in cookie
        assert cookie.endswith("; httponly; samesite=lax")


def test_session_id_is_a_uuid(plain):
    session_id = plain.post("/session").json()[SESSION_ID_KEY]
    assert (str(UUID(session_id)), UUID(session_id).version) == (session_id, 4)


def test_session_follows_the_cookie(plain):
    first = plain.post("/session").json()[SESSION_ID_KEY]
    assert plain.post("/session").json()[SESSION_ID_KEY] == first
    plain.cookies.clear()
    assert plain.post("/session").json()[SESSION_ID_KEY] != first


def test_only_a_changed_session_is_signed_again(plain):
    before = plain.post("/session").cookies[COOKIE]
    assert plain.post("/session").cookies[COOKIE] == before
    assert plain.post("/push").cookies[COOKIE] != before


def test_change_of_nested_session_values_is_kept(plain):
    assert [plain.post("/push").json()["stack"] for _ in range(3)] == [[0], [0, 1], [0, 1, 2]]


def test_cleared_session_gets_a_new_id(plain):
    first = plain.post("/push").json()
    plain.post("/clear")
    second = plain.post("/session").json()
    assert "stack" not in second
    assert second[SESSION_ID_KEY] != first[SESSION_ID_KEY]


def signed_with(secret, data):
    return itsdangerous.TimestampSigner(secret).sign(data).decode()


@each_case(
    "cookie",
    [
        "nonsense",
        "",
        "a.b.c",
        '"quoted; text"',
        signed_with(COOKIE, b"eyJzZXNzaW9uX2lkIjogInN0b2xlbiJ9"),
        signed_with("", b"eyJzZXNzaW9uX2lkIjogInN0b2xlbiJ9"),
        "eyJzZXNzaW9uX2lkIjogInN0b2xlbiJ9",
        "\u00e4\u00f6",
    ],
)
def test_forged_cookie_gets_a_new_session(plain, cookie):
    answer = plain.post("/session", headers={"cookie": f"{COOKIE}={cookie}".encode("latin-1")})
    assert answer.status_code == 200
    assert UUID(answer.json()[SESSION_ID_KEY])
    assert answer.cookies[COOKIE]


def test_each_process_signs_with_its_own_secret(plain):
    known = plain.post("/session").json()
    stranger = TestClient(make_server(PlainServer).setup_webserver(), cookies=dict(plain.cookies))
    assert stranger.post("/session").json() != known


@each_case("data", [b"bm8gSlNPTg==", b"WzFd", b"%%%"])
def test_signed_cookie_without_session_gets_a_new_one(data):
    server = make_server(PlainServer)
    client = TestClient(
        server.setup_webserver(), cookies={COOKIE: signed_with(context_of(server).cookie_secret, data)}
    )
    assert UUID(client.post("/session").json()[SESSION_ID_KEY])


@each_case("other", ['odd={"a": 1}', "x=[1, 2]", "nothing", "XPlainServer___servers=1", "=", "a=b=c"])
def test_other_cookies_are_ignored(plain, other):
    known = plain.post("/session").json()
    ours = f"{COOKIE}={plain.cookies[COOKIE]}"
    for header in (f"{other}; {ours}", f"{ours}; {other}"):
        plain.cookies.clear()
        assert plain.post("/session", headers={"cookie": header}).json() == known


async def put(request: Request) -> dict:
    request.session["put"] = True
    return dict(request.session)


def test_cookie_is_compatible_with_starlette():
    server = make_server(PlainServer)
    app = FastAPI()
    app.add_middleware(StarletteSessions, secret_key=context_of(server).cookie_secret, session_cookie=COOKIE)
    app.post("/put")(put)
    ours, starlettes = TestClient(server.setup_webserver()), TestClient(app)
    known = ours.post("/push").json()
    starlettes.cookies = ours.cookies
    assert starlettes.post("/put").json() == {**known, "put": True}
    ours.cookies = starlettes.cookies
    assert ours.post("/session").json() == {**known, "put": True}
