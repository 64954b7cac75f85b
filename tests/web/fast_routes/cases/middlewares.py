"""An author's middleware before, after and instead of a plain route."""

from __future__ import annotations

from typing import Any

from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse

from tests.web.fast_routes.asking import ADD, Ask, Cases, Number, add_route

CASES = Cases()


class Pure:
    """A plain ASGI middleware."""

    def __init__(self, app, ran, name):
        self.app, self.ran, self.name = app, ran, name

    async def __call__(self, scope, receive, send):
        self.ran.append(self.name)

        async def marked(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-by", self.name.encode())]
            await send(message)

        await self.app(scope, receive, marked)


@CASES.fast()
def a_pure_middleware_before_the_route(app, ran):
    app.add_middleware(Pure, ran=ran, name="first")
    add_route(app, ran)


@CASES.fast()
def two_middlewares_after_the_route(app, ran):
    add_route(app, ran)
    app.add_middleware(Pure, ran=ran, name="inner")
    app.add_middleware(Pure, ran=ran, name="outer")


@CASES.fast()
def a_middleware_with_a_class_for_requests(app, ran):
    class Counting(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            ran.append(await request.json())
            answer = await call_next(request)
            answer.headers["x-counted"] = "1"
            return answer

    add_route(app, ran)
    app.add_middleware(Counting)


@CASES.fast()
def a_middleware_that_is_a_function(app, ran):
    add_route(app, ran)

    @app.middleware("http")
    async def noting(request, call_next):
        ran.append(request.url.path)
        try:
            return await call_next(request)
        finally:
            ran.append("done")


@CASES.fast()
def a_middleware_that_answers_itself(app, ran):
    add_route(app, ran)

    @app.middleware("http")
    async def refusing(request, call_next):
        return PlainTextResponse("not today", 403)


@CASES.fast()
def a_middleware_that_replaces_the_body(app, ran):
    class Replacing:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            async def other():
                await receive()
                return {"type": "http.request", "body": b'{"x": 40}', "more_body": False}

            await self.app(scope, other, send)

    add_route(app, ran)
    app.add_middleware(Replacing)


@CASES.fast(ADD, Ask("/elsewhere"))
def a_middleware_that_changes_the_path(app, ran):
    class Leading:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            scope["path"] = "/add"
            await self.app(scope, receive, send)

    add_route(app, ran)
    app.add_middleware(Leading)


@CASES.fast()
def a_middleware_that_catches_what_a_handler_raises(app, ran):
    class Catching:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            try:
                await self.app(scope, receive, send)
            except ValueError as error:
                ran.append(str(error))
                await PlainTextResponse("caught", 501)(scope, receive, send)

    @app.post("/add")
    async def add(body: Number) -> Any:
        raise ValueError("no")

    app.add_middleware(Catching)
