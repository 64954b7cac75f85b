"""The call layer of a served app."""

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware

from nemo_gym import BaseVerifyRequest, Overloaded, SimpleResourcesServer
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER
from nemo_gym.testing import make_server
from nemo_gym.web.middleware import CallMiddleware


class Plain(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/fail")(self.fail)
        return app

    async def fail(self, request: Request) -> None:
        raise Overloaded("the endpoint is busy")


def call_layers_of(app: FastAPI) -> int:
    layer, count = app.build_middleware_stack(), 0
    while layer is not None:
        count += isinstance(layer, CallMiddleware)
        layer = getattr(layer, "app", None)
    return count


@pytest.mark.parametrize(("layers", "expected"), [((), 1), ((GZipMiddleware,), 2)])
async def test_authors_middleware_runs_inside_failures(layers, expected):
    server = make_server(Plain, name="plain")
    app = server.setup_webserver()
    for layer in layers:
        app.add_middleware(layer)
    server.setup_exception_middleware(app)
    server.setup_call_layer(app)
    assert call_layers_of(app) == expected
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://plain") as client:
        first, second = [await client.post("/fail") for _ in range(2)]
    assert (first.status_code, first.json()["failure_class"]) == (503, "overloaded")
    # A failure also sets the session's cookie, and the cookie is accepted.
    assert "plain" in first.headers["set-cookie"]
    assert first.headers["set-cookie"] == second.headers["set-cookie"]
    # The handler has begun, so the caller must not assume that a retry is safe.
    assert NOT_BEGUN_HEADER not in first.headers
