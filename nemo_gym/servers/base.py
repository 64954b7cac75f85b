"""Base class of all servers: the app, liveness routes, session cookies and shutdown."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from omegaconf import OmegaConf
from pydantic import BaseModel

from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.hooks import hooks
from nemo_gym.config.secret_values import SecretValues
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.config.view import CONFIG_PATH_ENV_VAR, block_of_server
from nemo_gym.errors import RolloutError, UserError
from nemo_gym.http.external import external_session
from nemo_gym.http.open_files import OPEN_FILES, raise_open_files_limit
from nemo_gym.web.admission import Admission
from nemo_gym.web.app import ServerApp, add_part
from nemo_gym.web.browsers import BrowserCheck
from nemo_gym.web.call import LIVENESS_PATHS, READS
from nemo_gym.web.failures import Failures
from nemo_gym.web.invalid_bodies import invalid_body_response
from nemo_gym.web.limits import CallLimits
from nemo_gym.web.profiling import ProfilingMiddlewareConfig, add_profiling
from nemo_gym.web.session_cookies import Sessions
from nemo_gym.web.session_routing import SessionRouting
from nemo_gym.web.telemetry import Telemetry
from nemo_gym.web.threads import blocking_pool

logger = logging.getLogger(__name__)

LIMITS = {
    "max_requests_in_flight": "in_flight", "max_requests_queued": "queued", "max_request_bytes": "body_bytes",
    "max_request_depth": "body_depth",
}  # fmt: skip
"""The field of `CallLimits` that each config key sets."""


@dataclass
class ServerContext:
    """A server's process-wide settings, counts and sibling processes."""

    telemetry: Telemetry
    """Counts of this process's calls."""
    cookie_secret: str = field(default_factory=lambda: secrets.token_hex(32))
    """The key that signs session cookies. All processes of an instance get the same key from the launcher."""
    secret_values: SecretValues = field(default_factory=SecretValues)
    """Values that are masked in this server's failure messages."""
    allowed_hosts: frozenset[str] = frozenset()
    """Additional host names by which browsers and proxies may call this server."""
    log_file: str = ""
    """The path of this process's log, if the launcher writes one."""
    processes: int = 1
    """The number of worker processes of this server."""
    siblings: SessionRouting | None = None
    """The other worker processes of this server; None if there are none, or if sessions do not hold state."""
    life: str | None = None
    """An id of this start of the process, stored in new sessions; None if a restart does not lose state."""
    progress: Callable[[str], None] = logger.info
    """A function that shows the user what the start of this server waits for."""
    note_start_failure: Callable[[str], None] | None = None
    """A function that receives the message of a `UserError` or a `RolloutError` of `startup`."""


class BaseServer(BaseModel):
    """Settings and liveness routes of a server. Subclass `SimpleServer`, which also calls other servers."""

    config: BaseServerConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseServerConfig:
        """Return the settings of this process's server, from the configuration that the process received."""
        name = os.environ[CONFIG_PATH_ENV_VAR]
        block = block_of_server(hooks().config(), name)
        settings, kind = OmegaConf.to_container(block, resolve=True), cls.model_fields["config"].annotation
        assert isinstance(settings, dict)
        assert isinstance(kind, type)
        assert issubclass(kind, BaseServerConfig)
        return kind.model_validate({**settings, "name": name})

    def setup_liveness(self, app: FastAPI) -> None:
        """Add the liveness routes, which the OpenAPI schema does not list."""

        async def is_alive() -> dict[str, str]:
            return {"status": "ok"}

        for path in LIVENESS_PATHS:
            app.api_route(path, methods=list(READS), include_in_schema=False)(is_alive)


class SimpleServer(BaseServer):
    """A FastAPI server that can call the run's other servers by name."""

    server_client: ServerClient

    FAILURE: ClassVar[type[RolloutError]] = RolloutError
    """The class of `RolloutError` that replaces an unexpected error of a handler in the response."""

    ray_enabled: ClassVar[bool] = False
    """Set by folders that use Ray. The framework ignores it, because those folders start Ray themselves."""

    # Use only this one private name, because further names could clash with those of server folders.
    @cached_property
    def _nemo_gym_context(self) -> ServerContext:
        return ServerContext(Telemetry(_name_of(self)))

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """Return the app with all of its routes."""

    @classmethod
    def run_webserver(cls) -> None:
        """Run this server alone, with the configuration from the command line, until the process is stopped."""
        # Imported here, because a server's module must not depend on the code that starts processes.
        from nemo_gym.process.standalone import serve_alone

        serve_alone(cls)

    def get_session_middleware_key(self) -> str:
        """Return the session cookie's name. It contains the instance's name, so that servers' cookies do not clash."""
        return f"{type(self).__name__}___{getattr(self.config, 'name', '')}"

    def session_beginnings(self) -> Container[str] | None:
        """Return the paths at which a session may begin; None if any call may begin one.

        At other paths, a call in a session from before a restart raises `ServerLost`, because the session's state is
        gone.
        """
        return None

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Add sessions to the app. A second call does nothing."""
        if getattr(app.state, "has_sessions", False):
            return
        app.state.has_sessions = True
        context = context_of(self)
        sessions = Sessions(
            cookie=self.get_session_middleware_key(),
            secret=context.cookie_secret,
            life=context.life,
            beginnings=hooks().server(self).session_beginnings(),
            siblings=context.siblings,
        )
        add_part(app, sessions=sessions)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Turn every failure of a handler into a response. The author's middlewares run inside this layer."""
        failures = Failures(
            _name_of(self), self.FAILURE, folder=folder_of(type(self)), log_file=context_of(self).log_file
        )
        add_part(app, failures=failures)

    def setup_call_layer(self, app: FastAPI, run_token: str | None = None, run_id: str = "") -> None:
        """Add the outermost layer: run token, limits on calls, deadlines and metrics."""
        given = {field: hooks().setting(self.config, key) for key, field in LIMITS.items()}
        limits = CallLimits(**{field: value for field, value in given.items() if value is not None})
        context = context_of(self)
        context.telemetry.counters = getattr(app.state, "counters", dict)
        admission = Admission(
            server=context.telemetry.server,
            telemetry=context.telemetry,
            limits=limits,
            run_token=run_token,
            run_id=run_id,
            admits=getattr(app.state, "admits", None),
            secrets=context.secret_values,
            browsers=BrowserCheck(context.telemetry.server, self.config.host, context.allowed_hosts),
            tier=self.FAILURE.default_tier,
        )
        add_part(app, admission=admission)

    def setup_profiling(self, app: FastAPI, profiling_config: ProfilingMiddlewareConfig) -> None:
        """Profile this process if profiling is enabled. `GET /stats` and the shutdown write the profile."""
        name = _name_of(self)
        add_profiling(app, name if context_of(self).processes == 1 else f"{name}_{os.getpid()}", profiling_config)

    @staticmethod
    def set_ulimit(target_soft_limit: int = OPEN_FILES) -> None:
        """Raise the limit on open files to `target_soft_limit`, or as far as the system allows."""
        raise_open_files_limit(target_soft_limit)

    def prefix_server_logs(self) -> None:
        """Do nothing. Some programs call this method, but the launcher already adds server names to log lines."""

    def new_app(self) -> FastAPI:
        """Return an app with sessions and rollout ids. It calls `startup` at its start and `aclose` at its end."""

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            server = hooks().server(self)
            tasks = [asyncio.create_task(task) for task in server.background_tasks()]
            blocking_pool(hooks().setting(self.config, "blocking_threads"))
            outside = external_session()
            outside.join(self)
            try:
                # Call the registered handlers here, because this lifespan replaces FastAPI's own. Skip the
                # `startup` method if the server's author has also registered it as a handler.
                own = [] if server.startup in app.router.on_startup else [server.startup]
                with self._noting_start_failure():
                    await _call_each([*own, *app.router.on_startup])
                yield
                await _call_each(app.router.on_shutdown)
            finally:
                await _stop(tasks)
                try:
                    # Close the rollouts' states before the author's resources, because states may use the resources.
                    await server.close_owned()
                    if server.aclose not in app.router.on_shutdown:
                        await _call_each([server.aclose])
                finally:
                    await outside.leave(self)
                    if (siblings := context_of(self).siblings) is not None:
                        await siblings.aclose()

        app = ServerApp(title=self.get_session_middleware_key(), lifespan=lifespan)
        self.setup_session_middleware(app)
        add_part(app, knows_rollouts=True)
        app.add_exception_handler(RequestValidationError, invalid_body_response)
        return app

    @contextmanager
    def _noting_start_failure(self) -> Iterator[None]:
        try:
            yield
        except (RolloutError, UserError) as error:
            if note := context_of(self).note_start_failure:
                note(str(error))
            raise

    def background_tasks(self) -> list[Coroutine[object, object, None]]:
        """Return the coroutines that run for as long as the server does."""
        return [context_of(self).telemetry.watch_loop(folder_of(type(self)))]

    async def startup(self) -> None:
        """Open what the server needs, before its first request. Does nothing by default."""

    def note_progress(self, text: str) -> None:
        """Show the user what `startup` waits for, such as the last log line of an engine that loads a model."""
        context_of(self).progress(text)

    async def aclose(self) -> None:
        """Close what the server opened, after its last request. Does nothing by default."""

    async def close_owned(self) -> None:
        """Close what the base classes opened. Because of this method, an author's `aclose` need not call `super()`."""


def context_of(server: SimpleServer) -> ServerContext:
    """Return the server's context. It has default values until the server's process sets others."""
    return server._nemo_gym_context


def folder_of(cls: type) -> Path | None:
    """Return the folder with the source code of a server class; None if its module does not have a file."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Path(file).parent if file else None


def _name_of(server: BaseServer) -> str:
    """Return the server's configured name, or its class name if a folder's settings lack a name."""
    name: str = getattr(server.config, "name", type(server).__name__)
    return name


async def _call_each(hooks: Iterable[Callable[[], object]]) -> None:
    for hook in hooks:
        result = hook()
        if inspect.isawaitable(result):
            await result


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            logger.error("a background task failed", exc_info=outcome)
