"""The FastAPI app of a server, and the layers that each of its calls passes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.web.fast_routes import FastRoute, FastRoutes
from nemo_gym.web.middleware import CallMiddleware

OUTER, INNER = ("admission", "failures"), ("knows_rollouts", "sessions")
"""The parts of the call layer outside and inside the author's middlewares."""


class ServerApp(FastAPI):
    """A FastAPI app with the call layer. All its routes are fast routes, also those that a server's author adds."""

    def __init__(self, **settings: Any) -> None:
        self.parts: dict[str, Any] = {}
        """Arguments of `CallMiddleware`."""
        self.within_session: list[Middleware] = []
        """Middlewares that read the session, outermost first."""
        self._is_traced = find_spec("opentelemetry.sdk") is not None
        if not self._is_traced:
            # Turn telemetry off. Otherwise, FastAPI would search for a tracer on every request without success.
            settings = {"telemetry": {"tracing": False, "metrics": False, "logs": False}, **settings}
        super().__init__(**settings)
        self.router.route_class = FastRoute

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the middleware stack directly if FastAPI's own `__call__` would do nothing else."""
        if scope["type"] != "http" or self.root_path or self.middleware_stack is None or self._is_traced:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Build the layers around the router, the innermost first."""
        known, of_all = self.exception_handlers, (500, Exception)
        handlers = {kind: handler for kind, handler in known.items() if kind not in of_all}
        on_error = next((handler for kind, handler in reversed(known.items()) if kind in of_all), None)
        app: ASGIApp = AsyncExitStackMiddleware(self.router)
        app = ExceptionMiddleware(app, handlers=handlers, debug=self.debug)
        app = FastRoutes(app, of=self)
        for cls, args, kwargs in reversed(self.within_session):
            app = cls(app, *args, **kwargs)
        if not self.user_middleware:
            app = CallMiddleware(app, **self.parts)
        else:
            app = CallMiddleware(app, **{name: part for name, part in self.parts.items() if name in INNER})
            for cls, args, kwargs in reversed(self.user_middleware):
                app = cls(app, *args, **kwargs)
            app = CallMiddleware(app, **{name: part for name, part in self.parts.items() if name in OUTER})
        if "failures" not in self.parts:
            app = ServerErrorMiddleware(app, handler=on_error, debug=self.debug)
        return app


def add_part(app: FastAPI, **part: Any) -> None:
    """Add parts of the call layer to an app. A `ServerApp` places them itself; any other app gets a middleware."""
    if isinstance(app, ServerApp):
        app.parts |= part
    else:
        app.add_middleware(CallMiddleware, **part)


def add_within_session(app: FastAPI, middleware: Middleware) -> None:
    """Add a middleware that runs inside the session layer, so that its scope contains the session."""
    inner = app.within_session if isinstance(app, ServerApp) else app.user_middleware
    inner.append(middleware)
