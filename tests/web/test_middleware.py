"""What stands in front of a server's app is one layer, wherever an author leaves it one."""

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from nemo_gym import AgentFailed, BaseVerifyRequest, Overloaded, SimpleResourcesServer
from nemo_gym.schemas.rollout import NOT_BEGUN_HEADER
from nemo_gym.testing import make_server
from nemo_gym.web.admission import Admission
from nemo_gym.web.failures import Failures
from nemo_gym.web.middleware import CallMiddleware, RolloutContextMiddleware, merged
from nemo_gym.web.session_cookies import Sessions
from nemo_gym.web.telemetry import Telemetry

GATE = Middleware(CallMiddleware, gate=Admission(server="s", telemetry=Telemetry("s")))
FAULTS = Middleware(CallMiddleware, faults=Failures("s", AgentFailed))
ROLLOUTS = Middleware(CallMiddleware, knows_rollouts=True)
SESSIONS = Middleware(CallMiddleware, sessions=Sessions(cookie="c", secret="s" * 32))
AUTHORS = Middleware(GZipMiddleware)
PUBLISHED = Middleware(RolloutContextMiddleware)


@pytest.mark.parametrize(
    ("standing", "parts"),
    [
        ([GATE, FAULTS, ROLLOUTS, SESSIONS], [{"gate", "faults", "knows_rollouts", "sessions"}]),
        ([GATE, FAULTS, AUTHORS, ROLLOUTS, SESSIONS], [{"gate", "faults"}, None, {"knows_rollouts", "sessions"}]),
        ([ROLLOUTS, SESSIONS, AUTHORS], [{"knows_rollouts", "sessions"}, None]),
        # An order of an author's own stays, and so does what somebody has put there twice.
        ([SESSIONS, FAULTS], [{"sessions"}, {"faults"}]),
        ([SESSIONS, SESSIONS], [{"sessions"}, {"sessions"}]),
        ([FAULTS, PUBLISHED, SESSIONS], [{"faults"}, None, {"sessions"}]),
        ([], []),
    ],
)
def test_fronts_that_follow_each_other_are_one(standing, parts):
    assert [set(each.kwargs) if each.cls is CallMiddleware else None for each in merged(standing)] == parts


class Plain(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> float:
        return 0.0

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/fail")(self.fail)
        return app

    async def fail(self, request: Request) -> None:
        raise Overloaded("the endpoint is busy")


def fronts_of(app: FastAPI) -> int:
    layer, count = app.build_middleware_stack(), 0
    while layer is not None:
        count += isinstance(layer, CallMiddleware)
        layer = getattr(layer, "app", None)
    return count


@pytest.mark.parametrize(("layers", "fronts"), [((), 1), ((GZipMiddleware,), 2)])
async def test_a_served_app_has_one_front_unless_an_authors_layer_stands_within(layers, fronts):
    server = make_server(Plain, name="plain")
    app = server.setup_webserver()
    for layer in layers:
        app.add_middleware(layer)
    server.setup_exception_middleware(app)
    server.setup_call_layer(app)
    assert fronts_of(app) == fronts
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://plain") as client:
        first, second = [await client.post("/fail") for _ in range(2)]
    assert (first.status_code, first.json()["failure_class"]) == (503, "overloaded")
    # The session's cookie goes with a failure, too, and comes back.
    assert "plain" in first.headers["set-cookie"]
    assert first.headers["set-cookie"] == second.headers["set-cookie"]
    # Something was begun here: the caller must not think that it may simply come again.
    assert NOT_BEGUN_HEADER not in first.headers
