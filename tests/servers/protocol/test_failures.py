"""Apps that fail: what reaches their callers then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.servers.protocol.caller import GET, Caller, asking, said, same, talk
from tests.servers.protocol.served import LENGTH_3, PATIENCE_S, Receive, Send, part, raises, start, whole


async def returns(_scope: dict[str, Any], _receive: Receive, _send: Send) -> None:
    return


async def cancels_itself(_scope: dict[str, Any], _receive: Receive, _send: Send) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(PATIENCE_S)


async def begins_with_the_body(_scope: dict[str, Any], _receive: Receive, send: Send) -> None:
    await send(part(b"abc", more=False))


async def corrects_itself(_scope: dict[str, Any], _receive: Receive, send: Send) -> None:
    for wrong in (part(b"abc"), {"type": "http.response.push"}):
        with pytest.raises(RuntimeError):
            await send(wrong)
    for message in whole(b"abc"):
        await send(message)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("app", [raises, returns, cancels_itself, begins_with_the_body, corrects_itself])
def test_an_app_that_fails_before_it_answers_is_answered_for(both, app, method):
    for served in both.values():
        served.app.given = app
    (answer,), _ = same(both, [asking(method=method)], method)
    assert answer.status == (200 if app is corrects_itself else 500)


TOO_EARLY = [start(200, LENGTH_3), part(b"a")]
BROKEN: dict[str, list[dict[str, Any]]] = {
    "that ends in the midst, with its length": TOO_EARLY,
    "that ends in the midst, in chunks": [start(), part(b"a")],
    "in which the head comes twice": [*TOO_EARLY, start()],
    "in which something else comes": [*TOO_EARLY, {"type": "http.response.push"}],
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_answer_is_broken_off_as_by_uvicorns_protocol(both, name):
    for served in both.values():
        served.says(BROKEN[name])
    ours, theirs = (said(served, GET) for served in both.values())
    assert ours == theirs
    assert ours.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("messages", "left"),
    [
        ([start(200, LENGTH_3)], b""),
        ([start()], b""),
        ([start(), start()], b""),
        ([start(200, LENGTH_3), part(b"abcd", more=False)], b""),
        ([start(200, LENGTH_3), part(b"ab", more=False)], b""),
        ([start(200, LENGTH_3), part(b"ab"), part(b"cd", more=False)], b"ab"),
        ([start(200, LENGTH_3), part(b"ab"), part(b"", more=False)], b"ab"),
        ([start(204), part(b"abc", more=False)], b""),
    ],
    ids=[
        "only a head with a length", "only a head", "two heads", "too long", "too short", "too long in parts",
        "too short in parts", "a body where there is none",
    ],
)  # fmt: skip
def test_of_an_answer_that_is_wrong_ours_sends_no_part_that_is_wrong_where_uvicorn_sends_some(ours, messages, left):
    ours.says(messages)
    came = said(ours, GET)
    assert came.partition(b"\r\n\r\n")[2] == left
    assert bool(came) == bool(left)


@pytest.mark.parametrize("lengths", [(), (LENGTH_3,)], ids=["without a length", "with a length"])
@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"b\r\nx-evil: 1"), (b"x-a", b"b\nx-evil: 1"), (b"x-a", b"b\rx-evil: 1"), (b"x-a", b"b\r\n"),
        (b"x-a\r\nx-evil", b"1"), (b"x-a", b"\r\n\r\nHTTP/1.1 200 OK\r\nx-evil: 1"), (b"x-a", b"b\n\r"),
        (b"x-a", b"evil\0"), (b"x-a", b"evil\x7f"), (b"x evil", b"1"), (b"x-evil:", b"1"), (b"", b"evil"),
    ],
)  # fmt: skip
def test_a_header_that_is_none_never_leaves_and_ours_says_that_it_failed(ours, lengths, header):
    ours.says([start(200, *lengths, header), part(b"abc", more=False)])
    with Caller(ours) as caller:
        caller.send(GET)
        answer = caller.answer()
        assert caller.rest() == b""
    assert (answer.status, answer.body) == (500, b"Internal Server Error")
    assert "evil" not in str(answer)


@pytest.mark.parametrize("start_", [start(99), start(600), start(200, (b"content-length", b"three"))])
def test_a_head_that_is_none_ours_says_that_it_failed(ours, start_):
    ours.says([start_, part(b"abc", more=False)])
    (answer,), last = talk(ours, [GET], ["GET"])
    assert (answer.status, answer.body, last) == (500, b"Internal Server Error", b"")


def test_an_app_that_fails_after_its_answer_costs_the_next_request_nothing_where_uvicorn_closes(ours):
    async def answers_then_raises(_scope, _receive, send):
        for message in whole(b"abc"):
            await send(message)
        await ours.app.gate.acquire()
        with pytest.raises(RuntimeError):
            await send(part(b"more", more=False))
        ours.app.seen.put("refused")
        raise ValueError("on purpose")

    ours.app.given = answers_then_raises
    with Caller(ours) as caller:
        caller.send(GET)
        assert caller.answer().body == b"abc"
        caller.send(asking("/x", b"abc")[:-1])
        ours.app.open_gate()
        assert ours.app.next_seen() == "refused"
        caller.send(b"c")
        assert caller.answer().told["body"] == "abc"


def test_garbage_in_the_midst_of_an_answer_breaks_it_off_where_uvicorn_sends_another_into_it(ours):
    async def streams(_scope, receive, send):
        await send(start(200, (b"content-length", b"1000")))
        await send(part(b"abc"))
        while (await receive())["type"] != "http.disconnect":
            pass
        await send(part(b"def"))
        ours.app.seen.put("gone")

    ours.app.given = streams
    with Caller(ours) as caller:
        caller.send(GET)
        caller.until(b"\r\n\r\n")
        assert caller.take(3) == b"abc"
        caller.send(b"\0\1\2")
        assert caller.rest() == b""
    assert ours.app.next_seen() == "gone"
