"""What every server has: an app, a name, liveness, its session cookie and an orderly end."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Container, Iterable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from omegaconf import OmegaConf
from pydantic import BaseModel, PrivateAttr

from nemo_gym.calls.client import PUBLISHED_NAME, ServerClient
from nemo_gym.config.published import CONFIG_PATH_ENV_VAR, get_first_server_config_dict, module_config
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import RolloutError
from nemo_gym.http.external import external_session
from nemo_gym.servers.context import ServerContext
from nemo_gym.servers.name_clashes import hook_of
from nemo_gym.web.admission import Admission
from nemo_gym.web.app import ServerApp, add_part
from nemo_gym.web.failures import Failures
from nemo_gym.web.invalid_bodies import invalid_body_response
from nemo_gym.web.limits import CallLimits
from nemo_gym.web.open_files import OPEN_FILES, raise_open_files_limit
from nemo_gym.web.profiling import ProfilingMiddlewareConfig, add_profiling
from nemo_gym.web.session_cookies import Sessions
from nemo_gym.web.telemetry import Telemetry
from nemo_gym.web.threads import blocking_pool

logger = logging.getLogger(__name__)

LIMITS = {
    "max_requests_in_flight": "in_flight", "max_requests_queued": "queued", "max_request_bytes": "body_bytes",
    "max_request_depth": "body_depth",
}  # fmt: skip
"""A server's settings, and the limits that they set."""


class BaseServer(BaseModel):
    """A server and its settings."""

    config: BaseServerConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseServerConfig:
        """The settings of the server that this process is, by what it knows of the configuration."""
        name = os.environ[CONFIG_PATH_ENV_VAR]
        block = get_first_server_config_dict(module_config(PUBLISHED_NAME), name)
        settings: Any = OmegaConf.to_container(block, resolve=True)
        kind: Any = cls.model_fields["config"].annotation
        config: BaseServerConfig = kind.model_validate({**settings, "name": name})
        return config

    def setup_liveness(self, app: FastAPI) -> None:
        """Add the routes that tell whether the server is up; they are hidden from the schema."""

        async def is_alive() -> dict[str, str]:
            return {"status": "ok"}

        for path in ("/", "/livez", "/readyz", "/healthz", "/health"):
            app.get(path, include_in_schema=False)(is_alive)


class SimpleServer(BaseServer):
    """A FastAPI server that can call the others by name."""

    server_client: ServerClient

    FAILURE: ClassVar[type[RolloutError]] = RolloutError
    """What the failure of a handler is to the rollout, where its error does not say."""

    ray_enabled: ClassVar[bool] = False
    """Published folders that use Ray say so; it is theirs to start, so nothing here asks."""

    # The one private name of ours: published folders have all kinds of their own.
    _nemo_gym_context: ServerContext | None = PrivateAttr(default=None)

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """The app with all of its routes."""

    @classmethod
    def run_webserver(cls) -> None:
        """Serve this class alone, from the configuration on the command line; it ends with the process."""
        # Imported here: a server's module must be importable without the machinery that starts processes.
        from nemo_gym.process.standalone import serve_alone

        serve_alone(cls)

    def get_session_middleware_key(self) -> str:
        """The session cookie's name: class and instance, so that cookies of several servers can travel together."""
        return f"{type(self).__name__}___{getattr(self.config, 'name', '')}"

    def session_beginnings(self) -> Container[str] | None:
        """The paths at which a session may begin; at others a session of a process that died is lost, with its state.

        None where nothing is kept of sessions, so that any call may begin one.
        """
        return None

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Give the app sessions, once."""
        if getattr(app.state, "has_sessions", False):
            return
        app.state.has_sessions = True
        standing = context_of(self)
        sessions = Sessions(
            cookie=self.get_session_middleware_key(),
            secret=standing.cookie_secret,
            life=standing.life,
            beginnings=hook_of(self, "session_beginnings")(),
            siblings=standing.siblings,
        )
        add_part(app, sessions=sessions)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Let no failure of a handler leave its caller without an answer; what is added later stands outside of it."""
        name = getattr(self.config, "name", type(self).__name__)
        add_part(app, failures=Failures(name, self.FAILURE))

    def setup_call_layer(self, app: FastAPI, run_token: str | None = None, run_id: str = "") -> None:
        """Bound how many calls are at work and for how long, count them, and turn strangers away; outermost of all."""
        given = {key: getattr(self.config, key, None) for key in LIMITS}
        limits = CallLimits(**{LIMITS[key]: value for key, value in given.items() if value is not None})
        standing = context_of(self)
        admission = Admission(
            server=standing.telemetry.server,
            telemetry=standing.telemetry,
            limits=limits,
            run_token=run_token,
            run_id=run_id,
            admits=getattr(app.state, "admits", None),
            secrets=standing.secret_values,
        )
        add_part(app, admission=admission)

    def setup_profiling(self, app: FastAPI, profiling_config: ProfilingMiddlewareConfig) -> None:
        """Profile this process if that is wanted; `GET /stats` and the server's end write the profile."""
        name = getattr(self.config, "name", type(self).__name__)
        add_profiling(app, name if context_of(self).processes == 1 else f"{name}_{os.getpid()}", profiling_config)

    @staticmethod
    def set_ulimit(target_soft_limit: int = OPEN_FILES) -> None:
        """Let this process open so many files at once, or as many as the system allows it."""
        raise_open_files_limit(target_soft_limit)

    def prefix_server_logs(self) -> None:
        """Published programs call it; whoever starts servers writes their names before their lines."""

    def new_app(self) -> FastAPI:
        """An app with sessions and the rollout's id, that calls `startup` and `aclose` at its ends."""

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            tasks = [asyncio.create_task(task) for task in hook_of(self, "background_tasks")()]
            blocking_pool(getattr(self.config, "blocking_threads", None))
            outside = external_session()
            outside.join(self)
            try:
                # FastAPI leaves `on_event` handlers to its own lifespan, which this one replaces.
                await _call_each(_with(hook_of(self, "startup"), app.router.on_startup))
                yield
                await _call_each(app.router.on_shutdown)
            finally:
                await _stop(tasks)
                try:
                    # Before what the author opened: a rollout's state may be made of it.
                    await hook_of(self, "close_owned")()
                    closing = hook_of(self, "aclose")
                    if closing not in app.router.on_shutdown:
                        await _call_each([closing])
                finally:
                    await outside.leave(self)
                    if (siblings := context_of(self).siblings) is not None:
                        await siblings.aclose()

        app = ServerApp(title=self.get_session_middleware_key(), lifespan=lifespan)
        self.setup_session_middleware(app)
        add_part(app, knows_rollouts=True)
        app.add_exception_handler(RequestValidationError, invalid_body_response)
        return app

    def background_tasks(self) -> list[Any]:
        """Coroutines that run for as long as the server does."""
        return [context_of(self).telemetry.watch_loop()]

    async def startup(self) -> None:
        """Called before the first request; override it to open what the server needs."""

    async def aclose(self) -> None:
        """Called after the last request; override it to close what the server opened."""

    async def close_owned(self) -> None:
        """Close what the base classes opened; an `aclose` of the author's own need not know of it."""


def context_of(server: SimpleServer) -> ServerContext:
    """Where a server stands in its run: by itself, until its process says more."""
    if server._nemo_gym_context is None:
        name = getattr(server.config, "name", type(server).__name__)
        server._nemo_gym_context = ServerContext(Telemetry(name))
    return server._nemo_gym_context


def _with(hook: Callable[[], Any], registered: Iterable[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """The hooks in their order, each once: folders may register one that is called anyway."""
    return [*({} if hook in registered else {hook: None}), *registered]


async def _call_each(hooks: Iterable[Callable[[], Any]]) -> None:
    for hook in hooks:
        result = hook()
        if inspect.isawaitable(result):
            await result


async def _stop(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            logger.error("a background task failed", exc_info=outcome)
