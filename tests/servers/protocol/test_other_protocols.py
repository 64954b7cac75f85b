"""What leads away from request and answer: `Expect: 100-continue`, and upgrades to another protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.protocol.caller import Caller, asking, pipelined, same
from tests.servers.protocol.served import OURS, Handler, Receive, Send, read, whole

EXPECTING = b"POST /%b HTTP/1.1\r\n%b: %b\r\ncontent-length: 3\r\n\r\n"


@pytest.mark.parametrize("header", [(b"expect", b"100-continue"), (b"Expect", b"100-Continue")])
def test_a_caller_that_waits_is_told_to_go_on_when_the_app_reads(both, header):
    answers, last = same(both, [EXPECTING % (b"x", *header), b"abc"], "POST", "POST")
    assert [answer.line for answer in answers] == ["HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"]
    assert answers[1].told["body"] == "abc"
    assert b"100 Continue" not in last


@pytest.mark.parametrize("asks_after", ["the head", "the body"])
def test_a_caller_that_was_answered_is_not_told_to_go_on(both, asks_after):
    for served in both.values():
        served.app.given = answers_then_receives(after_head=asks_after == "the head")
    answers, last = same(both, [EXPECTING % (b"given", b"expect", b"100-continue"), b"abc"], "POST")
    assert answers[0].body == b"ok"
    assert b"100 Continue" not in last


def answers_then_receives(*, after_head: bool) -> Handler:
    async def answers(_scope: dict[str, Any], receive: Receive, send: Send) -> None:
        head, body = whole(b"ok")
        await send(head)
        if after_head:
            await read(receive)
        await send(body)
        assert (await receive())["type"] == "http.disconnect"

    return answers


# Upgrades


@pytest.mark.parametrize(
    "headers",
    [
        ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA=="),
        ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ"),
    ],
    ids=["websocket", "h2c"],
)
@pytest.mark.parametrize("body", [None, b"abc"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_an_upgrade_is_answered_as_any_request_and_ours_closes_where_uvicorn_hears_no_more(
    both, headers, body, before
):
    data = pipelined(before) + asking("/x", body, *headers)
    for served in both.values():
        with Caller(served) as caller:
            caller.send(data)
            assert [caller.answer().status for _ in range(before)] == [200] * before
            answer = caller.answer()
            # A body could already be of the other protocol.
            assert answer.told["body"] == ""
            if served.name == OURS:
                assert ("connection", "close") in answer.headers
                assert caller.last_words() == b""
