"""Bodies and content types are accepted or rejected as by plain FastAPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import orjson
import pytest
from fastapi import Body, FastAPI
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer
from nemo_gym.testing import make_server
from nemo_gym.web.app import ServerApp
from nemo_gym.web.fast_routes import KEPT_BYTES
from tests.each_case import each_case
from tests.web.fast_routes.asking import JSON, Ask, Case, Number, add_route, outcomes_of


def endpoint_taking(kind: Any, default: Any = ...) -> Callable[..., Any]:
    async def endpoint(body: Any) -> Any:
        return repr(body)

    async def endpoint_with_default(body: Any = default) -> Any:
        return repr(body)

    chosen = endpoint if default is ... else endpoint_with_default
    chosen.__annotations__ = {"body": kind}
    return chosen


class Everything(BaseModel):
    x: Any = None
    text: str = ""
    whole: int = 0
    number: float = 0.0
    listed: list[Any] = []


async def _whole_request(request: Request) -> Any:
    return repr(await request.json())


async def _request_and_body(request: Request, body: Any = Body()) -> Any:
    return repr([await request.json(), body])


ENDPOINTS = {
    "a model": endpoint_taking(Everything),
    "a dict": endpoint_taking(dict),
    "anything": endpoint_taking(Annotated[Any, Body()]),
    "a list of integers": endpoint_taking(list[int]),
    "an integer": endpoint_taking(Annotated[int, Body()]),
    "a number": endpoint_taking(Annotated[float, Body()]),
    "a text": endpoint_taking(Annotated[str, Body()]),
    "bytes": endpoint_taking(Annotated[bytes, Body()]),
    "a dict or nothing": endpoint_taking(dict | None, None),
    "a dict or a default": endpoint_taking(dict | None, {"by": "default"}),
    "a model or a default": endpoint_taking(Number, Number(x=-1)),
    "a short list": endpoint_taking(Annotated[list, Body(max_length=5)]),
    "the request": _whole_request,
    "the request and anything": _request_and_body,
}
BODIES = {
    "an object": b'{"x": 1, "text": "a", "whole": 3, "number": 1.5, "listed": [1, {}, null]}',
    "an empty object": b"{}",
    "a list": b"[1, 2, 3]",
    "mixed": b'[1, "2", 3.0, true]',
    "a text": b'"word"',
    "a number": b"1.5",
    "true": b"true",
    "null": b"null",
    "nothing": b"",
    "blanks": b"  \r\n\t ",
    "blanks around": b' \r\n\t{"x" : 1 }\n ',
    "an odd blank": '{"x":\u00a01}'.encode(),
    "no JSON": b"x=1",
    "half an object": b'{"x": 1',
    "two objects": b"{}{}",
    "a comma too many": b'{"x": 1,}',
    "a list with a comma too many": b"[1,]",
    "single quotes": b"{'x': 1}",
    "a comment": b'{"x": 1} // one',
    "a key twice": b'{"x": 1, "x": 2, "text": "a", "text": "b"}',
    "NaN": b'{"x": NaN, "number": NaN}',
    "minus NaN": b'{"x": -NaN}',
    "nan": b'{"x": nan}',
    "endless": b'{"x": Infinity, "number": -Infinity}',
    "plus endless": b'{"x": +Infinity}',
    "Inf": b'{"x": Inf}',
    "beyond 64 bits": b'{"x": 12345678901234567890123, "whole": -98765432109876543210}',
    "of 5000 digits": b'{"x": ' + b"9" * 5000 + b"}",
    "leading zeros": b'{"x": 007}',
    "minus zero": b'{"x": -0, "number": -0.0}',
    "a plus": b'{"x": +1}',
    "a point at the end": b'{"x": 1.}',
    "a point at the beginning": b'{"x": .5}',
    "an exponent": b'{"x": 1E5, "number": 1e-7, "whole": 1e2}',
    "half an exponent": b'{"x": 1e}',
    "a float of many digits": b'{"x": 0.1000000000000000055511151231257827021181583404541015625, "number": 5e-324}',
    "a float beyond all": b'{"x": 1e400, "number": -1e400}',
    "a float below all": b'{"x": 1e-400}',
    "accents": '{"x": "é漢\U0001f600", "text": "\u2028"}'.encode(),
    "escapes": rb'{"x": "\u00e9\ud83d\ude00\/\b\f\n\r\t\\\"", "text": "\u0000"}',
    "an invalid escape": rb'{"x": "\q"}',
    "a line break in a text": b'{"x": "a\nb"}',
    "a zero in a text": b'{"x": "a\x00b"}',
    "a control sign": b'{"x": "\x1f\x7f"}',
    "no UTF-8": b'{"x": "\xff"}',
    "an encoded surrogate": b'{"x": "\xed\xa0\x80"}',
    "Latin-1": '{"x": "é"}'.encode("latin-1"),
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "UTF-16 without a mark": '{"x": "word"}'.encode("utf-16-le"),
    "UTF-32": '{"x": 1}'.encode("utf-32-be"),
    "UTF-8 with a mark": b'\xef\xbb\xbf{"x": 1}',
    "deep": b'{"x":' * 150 + b"1" + b"}" * 150,
    "deeper": b"[" * 300 + b"]" * 300,
    "many keys": orjson.dumps({str(number): number for number in range(300)}),
    "an empty key": b'{"": 1, "x": {"": []}}',
    "a key without quotes": b'{x: 1}',
    "a key that is a number": b'{1: 1}',
}  # fmt: skip
TYPES = {
    "application/json": True,
    "application/json;charset=utf-8": True,
    "Application/JSON": False,
    " application/json": False,
    "application/json-lines": False,
    "application/problem+json": False,
    "text/json": False,
    "text/plain": False,
    "application/x-www-form-urlencoded": False,
    "": False,
}


@each_case("kind", ENDPOINTS)
async def test_bodies_are_accepted_or_rejected_like_fastapi(kind):
    def setup(app, ran):
        app.post("/add")(ENDPOINTS[kind])

    asks = tuple(Ask(body=body) for body in BODIES.values())
    alone, _, _ = await outcomes_of(FastAPI(), Case(setup, asks, ()))
    ours, is_fast, _ = await outcomes_of(ServerApp(), Case(setup, asks, ()))
    assert dict(zip(BODIES, ours, strict=True)) == dict(zip(BODIES, alone, strict=True))
    # Only FastAPI itself reports invalid bodies.
    assert [outcome.status for outcome, took in zip(ours, is_fast, strict=True) if took].count(422) == 0
    assert any(is_fast)


@each_case("kind", ENDPOINTS)
async def test_content_types_are_handled_like_fastapi(kind):
    def setup(app, ran):
        app.post("/add")(ENDPOINTS[kind])

    headers = [((b"content-type", name.encode()),) for name in TYPES] + [(), (JSON, (b"content-type", b"text/plain"))]
    asks = tuple(Ask(body=b'{"x": 1}', headers=each) for each in headers)
    alone, _, _ = await outcomes_of(FastAPI(), Case(setup, asks, ()))
    ours, is_fast, _ = await outcomes_of(ServerApp(), Case(setup, asks, ()))
    assert ours == alone
    if kind == "a dict":
        assert is_fast == [*TYPES.values(), False, True]


async def _read_in_full(request: Request, body: dict = Body()) -> Any:
    streamed = b"".join([chunk async for chunk in request.stream()])
    if body.get("fails"):
        raise KeyError("fails")
    return [await request.json() == body, orjson.loads(await request.body()) == orjson.loads(streamed) == body]


async def _read_by_handler(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse(list(await request.json()), 418)


@pytest.mark.parametrize("keeps_body", [True, False])
async def test_endpoint_and_handlers_read_large_body(keeps_body):
    def setup(app, ran):
        app.post("/add")(_read_in_full)
        app.router.routes[-1].keeps_body = keeps_body
        app.add_exception_handler(KeyError, _read_by_handler)

    long_text = "é" * KEPT_BYTES
    asks = tuple(Ask(body=orjson.dumps({"text": long_text, "fails": fails})) for fails in (False, True))
    alone, _, _ = await outcomes_of(FastAPI(), Case(setup, asks, ()))
    ours, is_fast, _ = await outcomes_of(ServerApp(), Case(setup, asks, ()))
    assert ours == alone
    assert [outcome.status for outcome in ours] == [200, 418]
    assert all(is_fast)


LONE_SURROGATES = {
    rb'{"x": "\ud800", "text": "\udc00x"}': {"x": "\ufffd", "text": "\ufffdx"},
    rb'{"text": "\ude00\ud83d"}': {"text": "\ufffd\ufffd"},
    rb'{"\uDBFF": ["\ud83d\ude00\ud83d", "\\ud800", "\\\ud800"]}': {
        "\ufffd": ["\U0001f600\ufffd", r"\ud800", "\\\ufffd"]
    },
}


@pytest.mark.parametrize("kind", ["a dict", "anything", "the request and anything"])
async def test_lone_surrogates_are_replaced(kind):
    def setup(app, ran):
        app.post("/add")(ENDPOINTS[kind])

    asks = tuple(Ask(body=body) for body in LONE_SURROGATES)
    given, _, _ = await outcomes_of(ServerApp(), Case(setup, asks, ()))
    written = tuple(Ask(body=orjson.dumps(value)) for value in LONE_SURROGATES.values())
    expected, _, _ = await outcomes_of(FastAPI(), Case(setup, written, ()))
    assert given == expected
    assert [outcome.status for outcome in given] == [200] * len(given)


@pytest.mark.parametrize("chunks", [(b'{"x"',), (b"",), (b'{"x": 1}', b"")])
async def test_incomplete_body_is_not_a_server_failure(chunks, caplog):
    ask = Ask(chunks=chunks, is_complete=False)
    alone, _, ran_alone = await outcomes_of(FastAPI(), case := Case(add_route, (ask,), ()))
    ours, _, ran = await outcomes_of(ServerApp(), case)
    assert ours == alone
    assert alone[0].status == 400
    assert ran == ran_alone == []

    class Server(SimpleResourcesServer):
        async def verify(self, body: BaseVerifyRequest) -> float:
            raise NotImplementedError

    server = make_server(Server, name="calm")
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    await replace(ask, path="/verify").of(app)
    assert not caplog.records


async def test_endpoint_reading_the_body_sees_the_disconnect():
    def setup(app, ran):
        @app.post("/add")
        async def add(request: Request) -> Any:
            try:
                return {"body": (await request.body()).decode()}
            except ClientDisconnect:
                ran.append("left")
                raise

    ask = Ask(chunks=(b'{"x"',), is_complete=False)
    alone, _, _ = await outcomes_of(FastAPI(), case := Case(setup, (ask,), ()))
    ours, _, ran = await outcomes_of(ServerApp(), case)
    assert ours == alone
    assert ran == ["left"]


async def test_handler_of_passed_on_call_reads_empty_body():
    async def refuse(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(len(await request.body()), 502)

    def setup(app, ran):
        app.post("/add")(endpoint_taking(dict))
        app.router.routes[-1].pass_on = _passed_on_and_failed
        app.add_exception_handler(KeyError, refuse)

    (outcome,), _, _ = await outcomes_of(ServerApp(), Case(setup, (Ask(body=b'{"x": 1}'),), ()))
    assert (outcome.status, outcome.body) == (502, b"0")


async def _failing() -> bytes:
    raise KeyError("the endpoint is gone")


def _passed_on_and_failed(scope: Any, body: bytes) -> Any:
    return _failing()
