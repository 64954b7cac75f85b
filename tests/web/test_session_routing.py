"""Several processes of one server: each call is answered by the process that has its session."""

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
from nemo_gym.testing import make_server, reply
from nemo_gym.web.session_routing import Holder, SessionRouting
from nemo_gym.web.shutdown import answering
from tests.conftest import PATIENCE_S
from tests.each_case import each_case

ROW = {"responses_create_params": {"input": []}}
ANSWERED = {**ROW, "response": reply("Done.").model_dump(mode="json")}
TOKEN = "the-token-of-the-run"

noted: list[str] = []
"""Events of the tool `wait`; empty at the beginning of each test."""


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
        """Wait for a long time."""
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

        @app.api_route("/echo/{rest:path}", methods=["GET", "POST", "DELETE"])
        async def echo(request: Request) -> dict[str, Any]:
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
    """One process of the server, simulated in this one with its own unix socket."""

    def __init__(self, number: int, sockets: list[str], *, life: str = "life", token: str | None = None) -> None:
        self.socket = sockets[number]
        server = make_server(Counting, name="counting")
        context = context_of(server)
        context.cookie_secret = "s" * 64
        context.siblings = SessionRouting("counting", number, sockets, token)
        context.life = context.siblings.mark(life)
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
    """Two processes, and a client for both."""

    def __init__(self, sockets: list[str], token: str | None) -> None:
        self.sockets = sockets
        self.processes = [Process(number, sockets, token=token) for number in range(len(sockets))]
        self.client = InternalClient()
        self.headers: list[tuple[bytes, bytes]] = [(RUN_TOKEN_HEADER.encode(), token.encode())] if token else []

    async def ask(
        self, number: int, path: str, body: Any = None, cookie: str = "", method: str = "POST", **headers: str
    ) -> Reply:
        """Call one process. `cookie` belongs to a session."""
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
        """Begin a session in one process and return its cookie."""
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
async def test_session_is_found_from_every_process(run, number):
    cookie = await run.seeded(number)
    counts = [(await run.ask(asked, "/add", {"by": 1}, cookie)).body for asked in (0, 1, 1, 0)]
    assert counts == [b"1", b"2", b"3", b"4"]
    assert (await (await run.ask(1, "/verify", ANSWERED, cookie)).json())["reward"] == 4.0
    # Grading has ended the session in all processes.
    assert (await run.ask(0, "/add", {"by": 1}, cookie)).body == b"1"


async def test_concurrent_sessions_have_separate_states(run):
    async def play(number: int) -> float:
        cookie = await run.seeded(number % 2)
        for step in range(6):
            await run.ask(step % 2, "/add", {"by": number}, cookie)
        return (await (await run.ask((number + 1) % 2, "/verify", ANSWERED, cookie)).json())["reward"]

    assert await asyncio.gather(*map(play, range(30))) == [6.0 * number for number in range(30)]


async def test_call_without_session_is_answered_by_its_process(run):
    for number in (0, 1, 0):
        echoed = await (await run.ask(number, "/echo/x", method="GET")).json()
        assert (echoed["by"], echoed["method"]) == (number, "GET")


async def test_forwarded_call_arrives_unchanged(run):
    cookie = await run.seeded(1)
    direct = await (await run.ask(1, "/echo/x", cookie=cookie)).json()
    path = "/echo/a%20b%2Fc//%C3%A9?x=1&x=%20&y"
    sent = {"x_mine": "one", ROLLOUT_HEADER: "3-4", TIME_LEFT_HEADER: "30"}
    here = await (await run.ask(1, path, bytes(range(256)), cookie, "DELETE", **sent)).json()
    there = await (await run.ask(0, path, bytes(range(256)), cookie, "DELETE", **sent)).json()
    assert there == here
    assert (there["by"], there["method"], there["body"]) == (1, "DELETE", bytes(range(256)).hex())
    assert (there["rollout"], there["is_bounded"], there["mine"]) == ("3-4", True, ["one"])
    assert there["session"] == direct["session"]
    assert there["token"] is None


async def test_rollout_prefix_is_forwarded(run):
    cookie = await run.seeded(1)
    echoed = await (await run.ask(0, "/ng-rollout/5-6/echo/x?y=1", cookie=cookie)).json()
    assert (echoed["by"], echoed["rollout"], echoed["path"], echoed["query"]) == (1, "5-6", "/echo/x", "y=1")


async def test_large_body_is_forwarded_completely(run):
    cookie = await run.seeded(1)
    body = b"a large body " * 200_000
    assert (await (await run.ask(0, "/echo/x", body, cookie)).json())["body"] == body.hex()


async def test_forwarded_response_comes_back_unchanged(run):
    cookie = await run.seeded(1)
    here, there = await run.ask(1, "/odd", {}, cookie), await run.ask(0, "/odd", {}, cookie)
    assert (there.status, there.body) == (here.status, here.body) == (418, b"odd")
    assert there.set_cookie_values == here.set_cookie_values
    assert [value.partition("=")[0] for value in there.set_cookie_values] == ["a", "b", "Counting___counting"]
    # Headers that each process sets occur only once.
    assert Counted(name for name, _ in there.raw_headers) == Counted(name for name, _ in here.raw_headers)


@pytest.mark.parametrize(
    ("path", "body", "status"), [("/add", {"by": "many"}, 422), ("/nowhere", {}, 404), ("/add", b"{", 422)]
)
async def test_forwarded_client_error_comes_back_unchanged(run, path, body, status):
    cookie = await run.seeded(1)
    here, there = await run.ask(1, path, body, cookie), await run.ask(0, path, body, cookie)
    assert (there.status, there.body) == (here.status, here.body)
    assert there.status == status


async def until_noted(*expected):
    async with asyncio.timeout(PATIENCE_S):
        while noted != [*expected]:  # noqa: ASYNC110 - the handler notes it in another task
            await asyncio.sleep(0.01)


async def test_hanging_up_cancels_the_forwarded_call(run):
    cookie = await run.seeded(1)
    calling = asyncio.create_task(run.ask(0, "/wait", {}, cookie))
    await until_noted("begun")
    calling.cancel()
    await until_noted("begun", "ended")


async def test_deadline_applies_to_the_forwarded_call(run):
    cookie = await run.seeded(1)
    answer = await run.ask(0, "/wait", {}, cookie, **{TIME_LEFT_HEADER: "1"})
    assert (await answer.json())["failure_class"] == "timeout"
    await until_noted("begun", "ended")


@pytest.mark.parametrize("path", ["/add", "/verify"])
async def test_sessions_of_a_dead_process_are_lost(run, path):
    cookie, other = await run.seeded(1), await run.seeded(0)
    await run.processes[1].stop()
    answer = await run.ask(0, path, {"by": 1} if path == "/add" else ANSWERED, cookie)
    problem = await answer.json()
    assert (answer.status, problem["failure_class"], problem["server"]) == (503, "lost", "counting")
    # The other sessions continue.
    assert (await run.ask(0, "/add", {"by": 1}, other)).body == b"1"
    assert (await run.ask(0, "/seed_session", ROW)).status == 200


async def test_sessions_of_a_restarted_process_are_lost(run, tmp_path):
    cookie = await run.seeded(1)
    await run.processes[1].stop()
    (tmp_path / "1.sock").unlink(missing_ok=True)
    token = TOKEN if run.headers else None
    run.processes[1] = await Process(1, run.sockets, life="another life", token=token).start()
    answer = await run.ask(0, "/add", {"by": 1}, cookie)
    assert (answer.status, (await answer.json())["failure_class"]) == (503, "lost")
    # The rollout may begin again.
    again = await run.ask(0, "/seed_session", ROW, cookie)
    ((name, value),) = again.cookie_values.items()
    assert (await run.ask(0, "/add", {"by": 1}, f"{name}={value}")).body == b"1"


async def test_call_without_token_is_not_forwarded(run):
    cookie = await run.seeded(1)
    is_guarded, run.headers = bool(run.headers), []
    assert (await run.ask(0, "/add", {"by": 1}, cookie)).status == (401 if is_guarded else 200)


@each_case(
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
def test_mark_identifies_the_process_that_issued_it(mark, socket_of):
    holder = Holder(socket_of, "") if socket_of else None
    assert SessionRouting("counting", 1, ["zero", "one", "two"]).holder_of(mark) == holder


def test_each_process_issues_its_own_marks():
    siblings = [SessionRouting("counting", number, ["zero", "one"]) for number in range(2)]
    marks = [each.mark("abc") for each in siblings]
    assert [[each.holder_of(mark) for mark in marks] for each in siblings] == [
        [None, Holder("one", "")],
        [Holder("zero", ""), None],
    ]
