"""Run one server in its own process: load its settings, import its folder and serve requests."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import logging
import os
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FunctionType, ModuleType

import uvicorn
from omegaconf import DictConfig, OmegaConf
from starlette.types import ASGIApp

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.client import ServerClient
from nemo_gym.calls.hooks import hooks
from nemo_gym.config.explain import parse_settings
from nemo_gym.config.process import ProcessSettings
from nemo_gym.config.server_folders import ServerFolder
from nemo_gym.config.settings import BaseRunServerConfig, BaseServerConfig
from nemo_gym.config.tls import Tls
from nemo_gym.config.view import CONFIG_PATH_ENV_VAR, set_view, with_defaults
from nemo_gym.errors import ConfigError, LaunchError, SignatureError, UserError
from nemo_gym.http.external import ConnectionLimits, limit_connections
from nemo_gym.memory import settle_memory, tend_memory
from nemo_gym.paths import module_at, roots_from_here
from nemo_gym.schemas.rollout import run_id_of_server
from nemo_gym.servers.also_serve import also_serve_if_asked
from nemo_gym.servers.base import SimpleServer, context_of
from nemo_gym.servers.mcp.endpoint import expose_if_asked
from nemo_gym.servers.tools.handlers import check_bodies, place_of
from nemo_gym.text import LOG_FORMAT, visible
from nemo_gym.web.blocking import own_line
from nemo_gym.web.profiling import ProfilingMiddlewareConfig
from nemo_gym.web.session_routing import SessionRouting
from nemo_gym.web.shutdown import QuickShutdownServer

logger = logging.getLogger(__name__)

imports_entrypoint: ContextVar[bool] = ContextVar("imports_entrypoint", default=False)
"""Whether the module of a server is being imported."""
KEEP_ALIVE_S = 75
"""Seconds after which a server closes an idle connection. nemo_gym's client drops idle connections earlier, so it
never reuses one that was just closed."""
BASE_OF = {
    "resources_servers": "SimpleResourcesServer",
    "responses_api_agents": "SimpleResponsesAPIAgent",
    "responses_api_models": "SimpleResponsesAPIModel",
}
READ_BY_LAUNCHER = {
    name: BaseRunServerConfig.model_fields[name].default
    for name in ("num_workers", "workers", "isolated", "ray", "advertised_host", "advertised_port")
}
"""The settings that the launcher reads before a server's class is known, with their defaults."""


class Report:
    """The pipe to the launcher. It carries JSON messages and stays open for as long as the process lives."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def starting(self, start_timeout_s: float) -> None:
        """Report how many seconds the start may take, because the launcher does not see the default of a class."""
        self._write({"start_timeout_s": start_timeout_s})

    def progress(self, text: str) -> None:
        """Report what the start waits for. Without a launcher, log it."""
        if self._fd is None:
            logger.info("%s", text)
        self._write({"progress": text})

    def ready(self) -> None:
        """Report that the server accepts requests."""
        self._write({"ready": True})

    def failed(self, message: str, kind: str = "failed") -> None:
        """Report an error that the user can fix. If there is no launcher, print the error."""
        if self._fd is None:
            print(visible(f"Error: {message}"), file=sys.stderr, flush=True)  # noqa: T201
        self._write({kind: message})

    def start_failed(self, message: str) -> None:
        """Report why the server's `startup` failed, instead of the traceback that uvicorn would log."""
        logging.getLogger("uvicorn.error").disabled = True
        self.failed(message, "start_failure")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, message: dict[str, str] | dict[str, bool] | dict[str, float]) -> None:
        if self._fd is not None:
            os.write(self._fd, json.dumps(message).encode() + b"\n")


def serve(settings: ProcessSettings, listeners: Sequence[socket.socket], report: Report) -> int:
    """Serve until a signal asks to stop. Return the process's exit code."""
    prepare_process(settings)
    try:
        with _bounded_if_dry(settings, report):
            server = build_server(settings)
            if start_timeout_s := getattr(server.config, "start_timeout_s", None):
                report.starting(start_timeout_s)
            context = context_of(server)
            context.progress, context.note_start_failure = report.progress, report.start_failed
            app = build_app(server, settings)
    except UserError as error:
        report.failed(str(error))
        return 1
    if settings.dry_run:
        report.ready()
        return 0
    server.set_ulimit()
    logs_requests = settings.of_run.uvicorn_logging_show_200_ok
    return serve_app(app, listeners, report, tls=settings.tls, logs_requests=logs_requests)


@contextmanager
def _bounded_if_dry(settings: ProcessSettings, report: Report) -> Iterator[None]:
    """In a dry run, if building the server takes too long, report the line that is running and end the process."""
    if not settings.dry_run or settings.ready_timeout_s is None:
        yield
        return
    builder = threading.get_ident()

    def give_up() -> None:
        report.failed(
            f"{settings.name} has not started after {settings.ready_timeout_s:g} s: "
            f"{_place_in(settings.folder, builder)}. In a dry run no other server answers, so do not wait for one "
            "before the first request. --ready-timeout-s … gives servers longer to start."
        )
        os._exit(1)

    timer = threading.Timer(settings.ready_timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _place_in(folder: Path, thread: int) -> str:
    """Return the line of the folder's code that a thread is running: `app.py:12 in setup_webserver: time.sleep(1)`."""
    frame = sys._current_frames()[thread]
    own = own_line(folder, frame)
    if own is None:
        return f"it is in {frame.f_code.co_filename}:{frame.f_lineno}"
    return f"{own.filename}:{own.lineno} in {own.name}: {own.line}"


def prepare_process(settings: ProcessSettings) -> None:
    """Set the working directory, environment variables and configuration that the server's code expects."""
    log_to_stderr()
    # Add the current folder and the project to the search roots. Paths in the settings are relative to them, but this
    # process changes its working directory.
    os.environ.update(roots_from_here(ServerFolder.of(settings.folder).root))
    os.chdir(settings.folder)
    os.environ.update(settings.environment)
    os.environ[CONFIG_PATH_ENV_VAR] = settings.name
    limit_connections(ConnectionLimits.of(settings.plain))
    set_view(config_view(settings))


def log_to_stderr() -> None:
    """Log to standard error, which the launcher reads."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)


def serve_app(
    app: ASGIApp,
    listeners: Sequence[socket.socket],
    report: Report,
    *,
    tls: Tls | None = None,
    logs_requests: bool = False,
) -> int:
    """Serve on these sockets until a signal asks to stop. Return the process's exit code."""
    server = ReportingServer(uvicorn_config(app, logs_requests=logs_requests), report, tls)
    server.run(sockets=list(listeners))
    return 0 if server.started else 1


def build_server(settings: ProcessSettings) -> SimpleServer:
    """Return the server of a folder, with its typed settings and a client for the other servers."""
    cls = complete_server_class(load_module(settings), settings)
    server = cls(
        config=typed_config(cls, settings),
        server_client=ServerClient(
            head_server_config=settings.head,
            global_config_dict=config_view(settings),
            address_book=AddressBook.of_settings(settings),
        ),
    )
    context = context_of(server)
    context.cookie_secret = settings.cookie_secret
    context.secret_values = settings.secrets()
    context.allowed_hosts = frozenset(settings.of_run.allowed_hosts)
    context.log_file = settings.log_file
    context.processes = settings.num_workers
    has_others = settings.num_workers > 1 or settings.member
    if not has_others:
        context.life = secrets.token_hex(8)
    elif hooks().server(server).session_beginnings() is not None:
        context.siblings = SessionRouting(
            settings.name,
            settings.number,
            settings.sockets,
            settings.run_token,
            member=settings.member,
            directory=server.server_client.directory,
            tls=settings.tls,
        )
        context.life = context.siblings.mark(secrets.token_hex(8))
        if settings.num_workers > 1:
            _check_reaches_sessions(server, settings)
    # If sessions have no state, they need no routing, because every process can serve every session.
    return server


def _check_reaches_sessions(server: SimpleServer, settings: ProcessSettings) -> None:
    if getattr(server.config, "expose_tools_over_mcp", False):
        origin = settings.origins.get("expose_tools_over_mcp")
        raise ConfigError(
            f"{f'{origin}: ' if origin else ''}{settings.name}: with {settings.num_workers} processes, a call over "
            "MCP may reach a process that does not have its session. Set num_workers: 1 in the server's block, or "
            "remove expose_tools_over_mcp."
        )


def build_app(server: SimpleServer, settings: ProcessSettings) -> ASGIApp:
    """Return the server's app with liveness routes, failure handling and the middleware for calls."""
    try:
        app = server.setup_webserver()
        expose_if_asked(server, app)
        also_serve_if_asked(server, app)
        check_bodies(server, app)
    except SignatureError as error:
        raise LaunchError(f"{error.place or settings.folder / settings.entrypoint}: {error}") from error
    server.setup_liveness(app)
    server.setup_profiling(app, ProfilingMiddlewareConfig.model_validate(settings.plain))
    server.setup_exception_middleware(app)
    run_id = run_id_of_server(settings.run_id, settings.name) if settings.member else settings.run_id
    server.setup_call_layer(app, settings.run_token, run_id)
    return app


def load_module(settings: ProcessSettings) -> ModuleType:
    """Import the entrypoint. The error for a missing package or a missing name of ours has the line of the import."""
    before = imports_entrypoint.set(True)
    try:
        return _imported((settings.folder / settings.entrypoint).resolve(), settings)
    except ImportError as error:
        is_ours = f"{error.name}.".startswith("nemo_gym.")
        if not is_ours and not isinstance(error, ModuleNotFoundError):
            raise
        advice = "Install the package that provides it, or correct the import."
        if is_ours:
            advice = "This nemo_gym does not have the name, and no other package adds it. Replace it in the folder."
        elif (settings.folder / "requirements.txt").exists():
            advice += (
                " If requirements.txt does not list the package, try pip install 'nemo-gym[full]', or 'nemo-gym[ray]' "
                "for Ray. --auto-install gives the folder its own virtual environment."
            )
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
        raise LaunchError(f"{frames[-1].filename}:{frames[-1].lineno}: {error}. {advice}") from error
    finally:
        imports_entrypoint.reset(before)


def _imported(entrypoint: Path, settings: ProcessSettings) -> ModuleType:
    """Import the entrypoint by its module name if that leads to the same file, or else directly from the file."""
    root = ServerFolder.of(settings.folder).root
    for place in (str(root), str(settings.folder)):
        if place not in sys.path:
            sys.path.insert(0, place)
    name = ".".join(
        [settings.type, *settings.implementation.split("/"), *Path(settings.entrypoint).with_suffix("").parts]
    )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        module = None
    if module is not None and module.__file__ and Path(module.__file__).resolve() == entrypoint:
        return module
    return module_at(entrypoint, name)


def complete_server_class(module: ModuleType, settings: ProcessSettings) -> type[SimpleServer]:
    """Return the class that the entrypoint serves. Raise `LaunchError` if the class is incomplete."""
    cls = server_class(module, settings)
    if not issubclass(cls, SimpleServer):
        base = BASE_OF[settings.type]
        raise LaunchError(f"{settings.folder / settings.entrypoint}: {cls.__name__} must be derived from {base}.")
    if cls.__abstractmethods__:
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise LaunchError(f"{settings.folder / settings.entrypoint}: {cls.__name__} must define {missing}.")
    for method in filter(inspect.isfunction, vars(cls).values()):
        # Leave out functions that pydantic adds to the class.
        if method.__module__ == cls.__module__:
            _check_self(cls, method)
    return cls


def _check_self(cls: type[SimpleServer], method: FunctionType) -> None:
    names = [*inspect.signature(method).parameters]
    # A first parameter with a type is an argument. Without a type, it is the instance, under any name.
    if not names or names[0] == "body" or (names[0] != "self" and names[0] in method.__annotations__):
        raise LaunchError(
            f"{place_of(method)}: the method {method.__name__} of {cls.__name__} lacks self. Begin it with: "
            f"def {method.__name__}({', '.join(['self', *names])})"
        )


def server_class(module: ModuleType, settings: ProcessSettings) -> type[SimpleServer]:
    """Return the class that the entrypoint starts with `run_webserver()`, or else its only server class."""
    started = _class_started_in(Path(str(module.__file__)).read_text("utf-8"))
    if started is not None and inspect.isclass(getattr(module, started, None)):
        found: type[SimpleServer] = getattr(module, started)
        return found
    defined = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, SimpleServer) and value.__module__ == module.__name__
    ]
    leaves = [cls for cls in defined if not any(cls is not other and issubclass(other, cls) for other in defined)]
    if len(leaves) == 1:
        return leaves[0]
    entrypoint = settings.folder / settings.entrypoint
    if not leaves:
        raise LaunchError(f"{entrypoint}: no server class is defined here. Derive one from {BASE_OF[settings.type]}.")
    names = ", ".join(cls.__name__ for cls in leaves)
    raise LaunchError(
        f"{entrypoint}: several server classes are defined here ({names}). At the end of the file, start the "
        f"class to serve: if __name__ == '__main__': {leaves[-1].__name__}.run_webserver()"
    )


def _class_started_in(source: str) -> str | None:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="run_webserver")):
                return name
    return None


def typed_config(cls: type[SimpleServer], settings: ProcessSettings) -> BaseServerConfig:
    """Return the typed settings of a server's class. Raise a `ConfigError` that lists every problem with its place."""
    kind = cls.model_fields["config"].annotation
    assert inspect.isclass(kind)
    assert issubclass(kind, BaseServerConfig)
    values = {**settings.settings, **settings.model_dump(include={"name", "host", "port", "entrypoint"})}
    block = f"{settings.name}.{settings.type}.{settings.implementation}"
    context = {"folder": settings.folder, "checks_files": True}
    config = parse_settings(kind, values, block=block, origins=settings.origins, context=context)
    _check_defaults(kind, settings, block)
    return config


def _check_defaults(kind: type[BaseServerConfig], settings: ProcessSettings, block: str) -> None:
    """Raise `ConfigError` for a default of a class that the launcher has not applied, because it reads only YAML."""
    for name, usual in READ_BY_LAUNCHER.items():
        own = kind.model_fields[name].default if name in kind.model_fields else usual
        applied = settings.num_workers if name == "num_workers" else usual
        if own not in (usual, applied) and name not in settings.settings:
            raise ConfigError(
                f"{block}: {name} is {own!r} by default in {kind.__name__}, but the launcher reads this setting only "
                f"from YAML. Set {name}: {own} in the block."
            )


def config_view(settings: ProcessSettings) -> DictConfig:
    """Return the part of the configuration that this process may see, in its original shape.

    Only the code of server folders written for NeMo Gym reads it.
    """
    others = {
        name: {type_: {implementation: {"host": host, "port": port}}}
        for name, (type_, implementation, host, port) in settings.addresses.items()
    }
    own = {
        settings.type: {settings.implementation: {**settings.settings, "host": settings.host, "port": settings.port}}
    }
    # Include the token, because clients that an author creates read it from the configuration.
    token = {"run_token": settings.run_token} if settings.run_token else {}
    # Include these keys, because clients need them to find the servers on other machines.
    part = {"_ng_run_id": settings.run_id, "_ng_member": settings.member} if settings.member else {}
    shared = {**settings.plain, **with_defaults(settings.plain), **token, **part, **others}
    view = OmegaConf.create({**shared, settings.name: own, "head_server": settings.head.model_dump()})
    OmegaConf.set_readonly(view, True)
    return view


def uvicorn_config(app: ASGIApp, *, logs_requests: bool = False) -> uvicorn.Config:
    """Return the uvicorn settings that all nemo_gym servers share."""
    config = uvicorn.Config(
        app,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        ws=getattr(app, "websockets", "none"),
        lifespan="on",
        access_log=logs_requests,
        server_header=False,
        # Do not trust the headers of proxies, because nemo_gym's servers are not behind a proxy.
        proxy_headers=False,
        log_config=None,
        # Suppress uvicorn's messages on start and stop, because the launcher reports both.
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        backlog=4096,
    )
    if logs_requests:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    return config


class ReportingServer(QuickShutdownServer):
    """A uvicorn server that notifies the launcher when it accepts requests."""

    def __init__(self, config: uvicorn.Config, report: Report, tls: Tls | None = None) -> None:
        super().__init__(config, tls)
        self._report = report
        self._tending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            settle_memory()
            self._tending = asyncio.create_task(tend_memory())
            asyncio.get_running_loop().call_soon(self._report.ready)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tending is not None:
            self._tending.cancel()
        await super().shutdown(sockets)
