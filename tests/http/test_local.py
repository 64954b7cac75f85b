"""A server in the same process answers as it would through a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from nemo_gym.errors import ServerCallError
from nemo_gym.http.correlation import current_rollout_id, note_failure, noting_failures, rollout_context
from nemo_gym.http.deadline import deadline_in, time_left_s
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.local import LocalApp, LocalClient
from nemo_gym.http.reply import BrokenReply, NotConnected, Reply, ReplyTimedOut, Timeouts
from nemo_gym.schemas.rollout import TIME_LEFT_HEADER
from nemo_gym.servers.front import Front
from nemo_gym.servers.serve import uvicorn_config
from nemo_gym.servers.session_cookies import Sessions

OF_THE_SOCKET = frozenset({"date", "server", "connection", "transfer-encoding", "keep-alive"})
"""What a server says of the connection and of itself."""
LARGE = 3_000_000
WORD: ContextVar[str] = ContextVar("word", default="unset")

noted: list[str] = []
"""What handlers saw; every test begins with none of it."""


async def tell(request: Request) -> dict[str, Any]:
    body = await request.body()
    return {
        "method": request.method, "path": request.url.path, "url": str(request.url),
        "root": request.scope["root_path"],
        "raw_path": request.scope["raw_path"].decode(), "query": request.url.query, "params": request.path_params,
        "headers": [(name.decode(), value.decode("latin-1")) for name, value in request.scope["headers"]],
        "body": body.decode("latin-1"), "state": request.state.kept, "version": request.scope["http_version"],
    }  # fmt: skip


async def status(request: Request) -> Response:
    return Response(b"told", int(request.path_params["code"]), {"x-mine": "Yes"})


async def without_body(request: Request) -> Response:
    return Response(status_code=204)


async def repeated(request: Request) -> Response:
    answer = PlainTextResponse("twice")
    answer.set_cookie("a", "1")
    answer.set_cookie("b", "2; 3")
    answer.raw_headers.append((b"X-Same", b"one"))
    answer.raw_headers.append((b"x-same", b"two"))
    return answer


async def chunked(request: Request) -> Response:
    async def parts():
        for part in (b"one", b"", b"two", b"x" * 100_000):
            yield part
            await asyncio.sleep(0)

    return StreamingResponse(parts())


async def large(request: Request) -> Response:
    return Response(await request.body() * 2)


async def with_head(request: Request) -> Response:
    return PlainTextResponse("a body of twenty-six signs!!")


async def break_before(request: Request) -> Response:
    raise ZeroDivisionError("before")


async def break_with_timeout(request: Request) -> Response:
    raise TimeoutError("its own")


async def break_with_cancelled(request: Request) -> Response:
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for
    raise AssertionError("never here")


async def break_after(request: Request) -> Response:
    async def parts():
        yield b"one"
        await asyncio.sleep(0.01)
        raise ZeroDivisionError("after")

    return StreamingResponse(parts())


async def no_answer(scope: Any, receive: Any, send: Any) -> None:
    return None


async def half_an_answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def never(request: Request) -> Response:
    try:
        noted.append("asked")
        await asyncio.sleep(60)
    finally:
        noted.append("ended")
    return Response()


async def listens(scope: Any, receive: Any, send: Any) -> None:
    """Waits for the caller's leaving from the beginning, answers, and ends when it has heard of it."""
    await receive()
    leaving = asyncio.ensure_future(receive())
    await asyncio.sleep(0.01)
    noted.append("too early" if leaving.done() else "still there")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answered"})
    noted.append((await leaving)["type"])
    noted.append((await receive())["type"])


async def swallows(request: Request) -> Response:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        noted.append("swallowed")
    return PlainTextResponse("all the same")


async def sees(request: Request) -> list[Any]:
    seen = [WORD.get(), current_rollout_id(), time_left_s()]
    WORD.set("set by the handler")
    note_failure({"noted": "by the handler"})
    await asyncio.sleep(0)
    return [*seen, WORD.get()]


async def session(request: Request) -> Any:
    request.session["times"] = request.session.get("times", 0) + 1
    return request.session["times"]


class Raw:
    """Puts plain ASGI functions before an app."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        by_path = {"/no-answer": no_answer, "/half": half_an_answer, "/listens": listens}
        await by_path.get(scope.get("path", ""), self.app)(scope, receive, send)


def new_app() -> FastAPI:
    async def keep(app: FastAPI):
        yield {"kept": "by the lifespan"}

    app = FastAPI(lifespan=asynccontextmanager(keep))
    app.api_route("/tell/{rest:path}", methods=["GET", "POST", "PUT", "DELETE"], response_model=None)(tell)
    for function in (
        repeated, chunked, large, break_before, break_with_timeout, break_with_cancelled, break_after, never,
        swallows, sees, session,
    ):  # fmt: skip
        path = "/" + function.__name__.replace("_", "-")
        app.api_route(path, methods=["GET", "POST"], response_model=None)(function)
    app.get("/status/{code}", response_model=None)(status)
    app.get("/without-body", response_model=None)(without_body)
    app.router.routes.append(Route("/with-head", with_head, methods=["GET", "HEAD"]))
    app.add_middleware(Front, sessions=Sessions(cookie="mine", secret="s" * 32))
    app.add_middleware(Raw)
    return app


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the app listens, in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn_config(new_app()))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        serving.start()
        while not server.started:
            time.sleep(0.005)
        yield listener.getsockname()[1]
        server.should_exit = True
        serving.join(10)


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


@pytest.fixture
def local(port: int) -> LocalClient:
    return LocalClient({("127.0.0.1", port): LocalApp(new_app(), {"kept": "by the lifespan"})})


@pytest.fixture(params=["through a socket", "in this process"])
def client(request, local) -> InternalClient:
    return local if request.param == "in this process" else InternalClient()


def what_matters(reply: Reply) -> tuple[Any, ...]:
    headers = [(name, value) for name, value in reply.raw_headers if name.decode().lower() not in OF_THE_SOCKET]
    headers = [(name, value if name != b"set-cookie" else value.partition(b"=")[0]) for name, value in headers]
    return reply.status, headers, reply.body, reply.method, reply.url


JSON = [(b"content-type", b"application/json")]
ASKED: dict[str, dict[str, Any]] = {
    "a get": {"method": "GET", "path": "/tell/a"},
    "a post": {"path": "/tell/a", "body": b'{"x": 1}', "headers": JSON},
    "a post without a body": {"path": "/tell/a"},
    "a delete": {"method": "DELETE", "path": "/tell/a"},
    "a put with bytes": {"method": "PUT", "path": "/tell/a", "body": bytes(range(256))},
    "a query": {"path": "/tell/a?x=1&x=2&y=%C3%A9+z&empty=&flag"},
    "a query with another mark": {"path": "/tell/a?why=what?&more"},
    "an empty query": {"path": "/tell/a?"},
    "a fragment": {"path": "/tell/a?x=1#there"},
    "percents": {"path": "/tell/a%20b%2Fc%C3%A9/%7Bd%7D%25"},
    "percents that are none": {"path": "/tell/100%/%zz/%ff"},
    "dots and slashes": {"path": "/tell//a/../b/./"},
    "odd signs": {"path": "/tell/a;b=1,2:@!$&'()*+~|^`<>\"[]\\"},
    "headers": {"path": "/tell/a", "headers": [(b"X-Mine", b"One"), (b"x-mine", b"two"), (b"COOKIE", b"a=b; c=d")]},
    "blanks in headers": {"path": "/tell/a", "headers": [(b"x-mine", b"  padded \t"), (b"x-none", b"")]},
    "headers beyond ASCII": {"path": "/tell/a", "headers": [(b"x-mine", "é".encode("latin-1"))]},
    "an answer with repeated headers": {"path": "/repeated"},
    "an answer in chunks": {"path": "/chunked"},
    "an answer without a body": {"method": "GET", "path": "/without-body"},
    "a large body": {"path": "/large", "body": b"y" * LARGE},
    "only the head": {"method": "HEAD", "path": "/with-head"},
    "a status of 500": {"method": "GET", "path": "/status/500"},
    "a status of 404": {"method": "GET", "path": "/status/404"},
    "a path that is not there": {"path": "/nowhere"},
    "a method that is not there": {"method": "PUT", "path": "/repeated"},
    "a slash too many": {"path": "/repeated/"},
    "a failure before the answer": {"path": "/break-before"},
    "a timeout of the handler's own": {"path": "/break-with-timeout"},
    "a handler whose work was cancelled": {"path": "/break-with-cancelled"},
    "no answer": {"path": "/no-answer"},
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
async def test_the_reply_is_the_one_that_comes_through_a_socket(name, port, local):
    asked = {"method": "POST", "host": "127.0.0.1", "port": port, **ASKED[name]}
    async with InternalClient() as sockets:
        expected = what_matters(await sockets.request(**asked))
    assert what_matters(await local.request(**asked)) == expected


REFUSED: dict[str, dict[str, Any]] = {
    "a blank in the path": {"path": "/tell/a b"},
    "a path beyond ASCII": {"path": "/tell/é"},
    "a path without its slash": {"path": "tell"},
    "a line break in the path": {"path": "/tell/a\r\nx: y"},
    "a method in small letters": {"path": "/tell/a", "method": "post"},
    "a line break in a header": {"path": "/tell/a", "headers": [(b"x-mine", b"a\r\nx-other: b")]},
    "a line break in a header's name": {"path": "/tell/a", "headers": [(b"x-mine: a\nx-other", b"b")]},
    "a length of its own": {"path": "/tell/a", "headers": [(b"Content-Length", b"3")]},
    "a host of its own": {"path": "/tell/a", "headers": [(b"host", b"elsewhere")]},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_could_not_be_written_is_refused(name, port, client):
    with pytest.raises(ValueError, match=r"path begins|HTTP method|line break|written by the client"):
        await client.request(**{"method": "POST", "host": "127.0.0.1", "port": port, **REFUSED[name]})


@pytest.mark.parametrize("path", ["/break-after", "/half"])
async def test_an_answer_that_ends_too_early_is_broken(path, port, client):
    with pytest.raises(BrokenReply) as told:
        await client.request("POST", "127.0.0.1", port, path)
    assert told.value.was_sent
    assert f"POST http://127.0.0.1:{port}{path}" in str(told.value)


@pytest.mark.parametrize(
    ("timeouts", "limit"),
    [(Timeouts(total_s=0.1), "total_s"), (Timeouts(read_s=0.1), "read_s")],
)
async def test_a_handler_that_never_answers_is_given_up_in_time_and_hears_of_it(timeouts, limit, port, client):
    began_at = time.monotonic()
    with pytest.raises(ReplyTimedOut, match=limit) as told:
        await client.request("GET", "127.0.0.1", port, "/never", timeouts=timeouts)
    assert 0.1 <= time.monotonic() - began_at < 2
    assert told.value.was_sent


async def test_a_limit_of_the_callers_own_counts_also_where_the_rollout_has_more_time(port, client):
    headers = [(TIME_LEFT_HEADER.encode(), b"30.000")]
    with pytest.raises(ReplyTimedOut):
        await client.request("GET", "127.0.0.1", port, "/never", headers=headers, timeouts=Timeouts(total_s=0.1))


async def test_a_handler_is_cancelled_with_its_caller(local, port):
    calling = asyncio.create_task(local.request("GET", "127.0.0.1", port, "/never"))
    await asyncio.sleep(0.02)
    assert noted == ["asked"]
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert noted == ["asked", "ended"]


async def test_a_caller_in_a_group_of_tasks_is_cancelled_with_the_group(local, port):
    async def fail():
        await asyncio.sleep(0.02)
        raise ValueError("the other one")

    async def both():
        async with asyncio.TaskGroup() as group:
            group.create_task(local.request("GET", "127.0.0.1", port, "/never"))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as told:
        await both()
    assert [type(each) for each in told.value.exceptions] == [ValueError]
    assert noted == ["asked", "ended"]


async def test_a_callers_own_timeout_ends_the_handler_and_is_the_callers_to_see(local, port):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await local.request("GET", "127.0.0.1", port, "/never")
    assert noted == ["asked", "ended"]


async def test_a_handler_that_does_not_let_itself_be_cancelled_is_heard_out(local, port):
    reply = await local.request("GET", "127.0.0.1", port, "/swallows", timeouts=Timeouts(total_s=0.05))
    assert (reply.body, noted) == (b"all the same", ["swallowed"])


async def test_who_listens_for_the_callers_leaving_hears_of_it_after_the_answer(port, client):
    reply = await asyncio.wait_for(client.request("GET", "127.0.0.1", port, "/listens"), 5)
    assert reply.body == b"answered"
    # The server, in its thread, may still be about to hear of it.
    for _ in range(1000):
        if len(noted) < 3:
            await asyncio.sleep(0.005)
    assert noted == ["still there", "http.disconnect", "http.disconnect"]


async def test_context_variables_do_not_pass_from_one_server_to_the_other(port, client):
    WORD.set("set by the caller")
    with rollout_context("a-b"), deadline_in(30), noting_failures() as failures:
        reply = await client.request("GET", "127.0.0.1", port, "/sees")
        assert await reply.json() == ["unset", None, None, "set by the handler"]
        assert (WORD.get(), current_rollout_id(), failures) == ("set by the caller", "a-b", [])


async def test_sessions_are_kept_by_cookie_and_by_nothing_else(port, client):
    first = await client.request("POST", "127.0.0.1", port, "/session")
    again = await client.request("POST", "127.0.0.1", port, "/session")
    assert [first.body, again.body] == [b"1", b"1"]
    cookie = [(b"Cookie", f"other=x; mine={first.cookie_values['mine']}".encode())]
    assert (await client.request("POST", "127.0.0.1", port, "/session", headers=cookie)).body == b"2"


async def test_many_calls_go_on_side_by_side(port, local):
    paths = ["/tell/a", "/chunked", "/break-before", "/nowhere"] * 50
    replies = await asyncio.gather(*(local.request("POST", "127.0.0.1", port, path) for path in paths))
    assert [reply.status for reply in replies] == [200, 200, 500, 404] * 50


async def test_a_call_may_be_made_from_within_a_call(port):
    app = FastAPI()
    client = LocalClient({("inner", 1): LocalApp(new_app(), {"kept": ""}), ("outer", 1): LocalApp(app)})

    @app.post("/ask/{path}", response_model=None)
    async def ask(path: str) -> Any:
        WORD.set("set by the outer one")
        answers = await asyncio.gather(*(client.request("POST", "inner", 1, f"/{path}") for _ in range(3)))
        return [WORD.get(), *[await reply.json() for reply in answers]]

    reply = await client.request("POST", "outer", 1, "/ask/sees")
    assert await reply.json() == ["set by the outer one", *[["unset", None, None, "set by the handler"]] * 3]


async def test_other_addresses_and_sockets_are_called_as_ever(port, tmp_path):
    async with LocalClient({("elsewhere", 1): LocalApp(no_answer)}) as client:
        assert (await client.request("GET", "127.0.0.1", port, "/status/418")).status == 418
        with pytest.raises(NotConnected):
            await client.request("GET", "elsewhere", 1, "/", uds=str(tmp_path / "none.sock"))
        with pytest.raises(ServerCallError):
            await client.request("GET", "127.0.0.1", 9, "/")


async def test_failures_are_logged_with_their_traceback(port, local, caplog):
    await local.request("POST", "127.0.0.1", port, "/break-before")
    (record,) = [each for each in caplog.records if each.name == "nemo_gym.http.local"]
    assert record.getMessage() == f"POST http://127.0.0.1:{port}/break-before failed"
    assert "ZeroDivisionError: before" in record.exc_text
