"""A server in the same process answers as it would through a socket."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.errors import ServerCallError
from nemo_gym.http.internal import InternalClient
from nemo_gym.http.local import LocalApp, LocalClient
from nemo_gym.http.reply import BrokenReply, NotConnected, Reply
from tests.http.local.app import LARGE, no_answer

OF_THE_SOCKET = frozenset({"date", "server", "connection", "transfer-encoding", "keep-alive"})
"""What a server says of the connection and of itself."""


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
