"""Several processes of one server: a call is answered by the one that has its session, whichever was asked."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter as Counted
from collections.abc import AsyncIterator
from typing import Any, Self

import orjson
import pytest
from fastapi import Request
from starlette.responses import PlainTextResponse

from nemo_gym import SESSION_ID_KEY, BaseVerifyRequest, SessionState, SimpleResourcesServer, tool
from nemo_gym.context.deadline import time_left_s
from nemo_gym.context.rollout_id import current_rollout_id
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.reply import Reply
from nemo_gym.process.serve import uvicorn_config
from nemo_gym.schemas.rollout import ROLLOUT_HEADER, RUN_TOKEN_HEADER, TIME_LEFT_HEADER
from nemo_gym.servers.base import context_of
from nemo_gym.testing import answering, make_server, reply
from nemo_gym.web.session_routing import SessionRouting

ROW = {"responses_create_params": {"input": []}}
ANSWERED = {**ROW, "response": reply("Done.").model_dump(mode="json")}
TOKEN = "the-token-of-the-run"

noted: list[str] = []
"""What became of the tool that waits; every test begins with none of it."""


class Counter(SessionState):
    count: int = 0


class Counting(SimpleResourcesServer):
    @tool
    async def add(self, by: int, counter: Counter) -> int:
        """Add."""
        counter.count += by
        return counter.count

    @tool
    async def wait(self, counter: Counter) -> str:
        """Wait for long."""
        try:
            noted.append("begun")
            await asyncio.sleep(60)
        finally:
            noted.append("ended")
        return ""

    async def verify(self, body: BaseVerifyRequest, counter: Counter) -> float:
        return float(counter.count)

    def setup_webserver(self):
        app = super().setup_webserver()

        @app.api_route("/told/{rest:path}", methods=["GET", "POST", "DELETE"])
        async def told(request: Request) -> dict[str, Any]:
            return {
                "by": context_of(self).siblings.number, "method": request.method, "path": request.url.path,
                "query": request.url.query, "body": (await request.body()).hex(),
                "mine": request.headers.getlist("x-mine"), "rollout": current_rollout_id(),
                "is_bounded": time_left_s() is not None, "session": request.session[SESSION_ID_KEY],
                "token": request.headers.get(RUN_TOKEN_HEADER),
            }  # fmt: skip

        @app.post("/odd")
        async def odd(request: Request):
            answer = PlainTextResponse("odd", 418)
            answer.set_cookie("a", "1")
            answer.set_cookie("b", "2")
            return answer

        return app


class Process:
    """One process of the server, played in this one; it listens at its unix socket."""

    def __init__(self, number: int, sockets: list[str], *, life: str = "life", token: str | None = None) -> None:
        self.socket = sockets[number]
        server = make_server(Counting, name="counting")
        standing = context_of(server)
        standing.cookie_secret = "s" * 64
        standing.siblings = SessionRouting("counting", number, sockets, token)
        standing.life = standing.siblings.mark(life)
        app = server.setup_webserver()
        server.setup_exception_middleware(app)
        server.setup_call_layer(app, token)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket)
        listener.listen()
        self._answering = answering(uvicorn_config(app), listener)

    async def start(self) -> Self:
        await self._answering.__aenter__()
        return self

    async def stop(self) -> None:
        await self._answering.__aexit__(None, None, None)


class Run:
    """Two processes, and a caller that asks either."""

    def __init__(self, sockets: list[str], token: str | None) -> None:
        self.sockets = sockets
        self.processes = [Process(number, sockets, token=token) for number in range(len(sockets))]
        self.client = InternalClient()
        self.headers: list[tuple[bytes, bytes]] = [(RUN_TOKEN_HEADER.encode(), token.encode())] if token else []

    async def ask(
        self, number: int, path: str, body: Any = None, cookie: str = "", method: str = "POST", **headers: str
    ) -> Reply:
        """Ask one process; `cookie` is that of a session."""
        sent = [*self.headers, *((name.replace("_", "-").encode(), text.encode()) for name, text in headers.items())]
        if cookie:
            sent.append((b"cookie", cookie.encode()))
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        if not isinstance(body, bytes | None):
            sent.append((b"content-type", b"application/json"))
        return await self.client.request(
            method, "counting", 80, path, body=content, headers=sent, uds=self.sockets[number]
        )

    async def seeded(self, number: int) -> str:
        """The cookie of a session that one process has."""
        answer = await self.ask(number, "/seed_session", ROW)
        assert answer.status == 200
        ((name, value),) = answer.cookie_values.items()
        return f"{name}={value}"

    async def start(self) -> Self:
        await asyncio.gather(*(process.start() for process in self.processes))
        return self

    async def close(self) -> None:
        await self.client.close()
        await asyncio.gather(*(process.stop() for process in self.processes))


@pytest.fixture(params=[None, TOKEN], ids=["open to all", "with a token"])
async def run(request, tmp_path) -> AsyncIterator[Run]:
    noted.clear()
    running = await Run([str(tmp_path / f"{number}.sock") for number in range(2)], request.param).start()
    yield running
    await running.close()


@pytest.mark.parametrize("number", [0, 1])
async def test_a_session_is_found_whichever_process_is_asked(run, number):
    cookie = await run.seeded(number)
    counts = [(await run.ask(asked, "/add", {"by": 1}, cookie)).body for asked in (0, 1, 1, 0)]
    assert counts == [b"1", b"2", b"3", b"4"]
    assert (await (await run.ask(1, "/verify", ANSWERED, cookie)).json())["reward"] == 4.0
    # Grading has ended it, everywhere.
    assert (await run.ask(0, "/add", {"by": 1}, cookie)).body == b"1"


async def test_many_sessions_go_on_at_once_and_none_sees_anothers_state(run):
    async def play(number: int) -> float:
        cookie = await run.seeded(number % 2)
        for step in range(6):
            await run.ask(step % 2, "/add", {"by": number}, cookie)
        return (await (await run.ask((number + 1) % 2, "/verify", ANSWERED, cookie)).json())["reward"]

    assert await asyncio.gather(*map(play, range(30))) == [6.0 * number for number in range(30)]


async def test_a_call_without_a_session_is_answered_where_it_comes_in(run):
    for number in (0, 1, 0):
        told = await (await run.ask(number, "/told/x", method="GET")).json()
        assert (told["by"], told["method"]) == (number, "GET")


async def test_what_is_passed_on_arrives_as_it_was_sent(run):
    cookie = await run.seeded(1)
    direct = await (await run.ask(1, "/told/x", cookie=cookie)).json()
    path = "/told/a%20b%2Fc//%C3%A9?x=1&x=%20&y"
    sent = {"x_mine": "one", ROLLOUT_HEADER: "3-4", TIME_LEFT_HEADER: "30"}
    here = await (await run.ask(1, path, bytes(range(256)), cookie, "DELETE", **sent)).json()
    there = await (await run.ask(0, path, bytes(range(256)), cookie, "DELETE", **sent)).json()
    assert there == here
    assert (there["by"], there["method"], there["body"]) == (1, "DELETE", bytes(range(256)).hex())
    assert (there["rollout"], there["is_bounded"], there["mine"]) == ("3-4", True, ["one"])
    assert there["session"] == direct["session"]
    assert there["token"] is None


async def test_a_rollout_that_stands_in_the_path_is_passed_on_too(run):
    cookie = await run.seeded(1)
    told = await (await run.ask(0, "/ng-rollout/5-6/told/x?y=1", cookie=cookie)).json()
    assert (told["by"], told["rollout"], told["path"], told["query"]) == (1, "5-6", "/told/x", "y=1")


async def test_a_large_body_is_passed_on_whole(run):
    cookie = await run.seeded(1)
    body = b"a large body " * 200_000
    assert (await (await run.ask(0, "/told/x", body, cookie)).json())["body"] == body.hex()


async def test_the_answer_comes_back_as_it_was_given(run):
    cookie = await run.seeded(1)
    here, there = await run.ask(1, "/odd", {}, cookie), await run.ask(0, "/odd", {}, cookie)
    assert (there.status, there.body) == (here.status, here.body) == (418, b"odd")
    assert there.set_cookie_values == here.set_cookie_values
    assert [value.partition("=")[0] for value in there.set_cookie_values] == ["a", "b", "Counting___counting"]
    # Of what each process says of itself, the caller hears once.
    assert Counted(name for name, _ in there.raw_headers) == Counted(name for name, _ in here.raw_headers)


@pytest.mark.parametrize(
    ("path", "body", "status"), [("/add", {"by": "many"}, 422), ("/nowhere", {}, 404), ("/add", b"{", 422)]
)
async def test_a_refusal_comes_back_as_it_was_given(run, path, body, status):
    cookie = await run.seeded(1)
    here, there = await run.ask(1, path, body, cookie), await run.ask(0, path, body, cookie)
    assert (there.status, there.body) == (here.status, here.body)
    assert there.status == status


async def test_a_caller_that_leaves_is_missed_where_its_session_is(run):
    cookie = await run.seeded(1)
    calling = asyncio.create_task(run.ask(0, "/wait", {}, cookie))
    for _ in range(500):
        if not noted:
            await asyncio.sleep(0.01)
    calling.cancel()
    for _ in range(500):
        if noted[-1:] != ["ended"]:
            await asyncio.sleep(0.01)
    assert noted == ["begun", "ended"]


async def test_the_rollouts_deadline_holds_where_its_session_is(run):
    cookie = await run.seeded(1)
    answer = await run.ask(0, "/wait", {}, cookie, **{TIME_LEFT_HEADER: "0.2"})
    assert ((await answer.json())["failure_class"], noted) == ("timeout", ["begun", "ended"])


@pytest.mark.parametrize("path", ["/add", "/verify"])
async def test_what_a_process_held_is_lost_with_it(run, path):
    cookie, other = await run.seeded(1), await run.seeded(0)
    await run.processes[1].stop()
    answer = await run.ask(0, path, {"by": 1} if path == "/add" else ANSWERED, cookie)
    problem = await answer.json()
    assert (answer.status, problem["failure_class"], problem["server"]) == (503, "lost", "counting")
    # The others go on.
    assert (await run.ask(0, "/add", {"by": 1}, other)).body == b"1"
    assert (await run.ask(0, "/seed_session", ROW)).status == 200


async def test_what_a_process_held_is_lost_when_it_was_started_again(run, tmp_path):
    cookie = await run.seeded(1)
    await run.processes[1].stop()
    (tmp_path / "1.sock").unlink(missing_ok=True)
    token = TOKEN if run.headers else None
    run.processes[1] = await Process(1, run.sockets, life="another life", token=token).start()
    answer = await run.ask(0, "/add", {"by": 1}, cookie)
    assert (answer.status, (await answer.json())["failure_class"]) == (503, "lost")
    # A rollout that begins anew is as good as any.
    again = await run.ask(0, "/seed_session", ROW, cookie)
    ((name, value),) = again.cookie_values.items()
    assert (await run.ask(0, "/add", {"by": 1}, f"{name}={value}")).body == b"1"


async def test_a_stranger_is_turned_away_before_anything_is_passed_on(run):
    cookie = await run.seeded(1)
    is_guarded, run.headers = bool(run.headers), []
    assert (await run.ask(0, "/add", {"by": 1}, cookie)).status == (401 if is_guarded else 200)


@pytest.mark.parametrize(
    ("mark", "socket_of"),
    [
        ("0.a", "zero"),
        ("2.a", "two"),
        ("2.", "two"),
        ("1.a", None),
        ("3.a", None),
        ("99999999999999999999.a", None),
        ("-1.a", None),
        ("²", None),
        ("².a", None),
        ("2", None),
        ("a.2", None),
        (".2", None),
        ("", None),
        (None, None),
        (2, None),
        (["2.a"], None),
    ],
)
def test_a_mark_leads_to_the_process_that_gave_it(mark, socket_of):
    assert SessionRouting("counting", 1, ["zero", "one", "two"]).socket_of(mark) == socket_of


def test_each_process_marks_its_lives_as_its_own():
    siblings = [SessionRouting("counting", number, ["zero", "one"]) for number in range(2)]
    marks = [each.mark("abc") for each in siblings]
    assert [[each.socket_of(mark) for mark in marks] for each in siblings] == [[None, "one"], ["zero", None]]
