"""What a server's own process does: read its settings, import its folder, serve."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import json
import logging
import os
import secrets
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import uvicorn
from omegaconf import OmegaConf
from starlette.types import ASGIApp

from nemo_gym.calls.client import ServerClient
from nemo_gym.config import parse_settings
from nemo_gym.config.access import RUN_TOKEN_KEY
from nemo_gym.config.process import ProcessSettings
from nemo_gym.config.published import CONFIG_PATH_ENV_VAR, published_defaults, set_process_config
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.errors import ConfigError, LaunchError, SignatureError, UserError
from nemo_gym.memory import settle_memory, tend_memory
from nemo_gym.paths import roots_from_here
from nemo_gym.servers.base import SimpleServer, context_of
from nemo_gym.servers.mcp.endpoint import expose_if_asked
from nemo_gym.servers.name_clashes import hook_of
from nemo_gym.web.profiling import ProfilingMiddlewareConfig
from nemo_gym.web.session_routing import SessionRouting
from nemo_gym.web.shutdown import QuickShutdownServer

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""Longer than the idle limit of our own client, so that a reused connection is never one we just closed."""
BASE_OF = {
    "resources_servers": "SimpleResourcesServer",
    "responses_api_agents": "SimpleResponsesAPIAgent",
    "responses_api_models": "SimpleResponsesAPIModel",
}


class Report:
    """The line to the launcher: one JSON message, then it stays open for as long as the process lives."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def ready(self) -> None:
        """The server accepts requests."""
        self._write({"ready": True})

    def failed(self, message: str) -> None:
        """The server cannot start, and its user can mend it. Without a launcher, who would say it, it is printed."""
        if self._fd is None:
            print(f"Error: {message}", file=sys.stderr, flush=True)  # noqa: T201
        self._write({"failed": message})

    def close(self) -> None:
        """Say nothing more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, message: dict[str, Any]) -> None:
        if self._fd is not None:
            os.write(self._fd, json.dumps(message).encode() + b"\n")


def serve(settings: ProcessSettings, listeners: Sequence[socket.socket], report: Report) -> int:
    """Serve until told to stop; the process's exit code."""
    prepare_process(settings)
    try:
        server = build_server(settings)
        app = build_app(server, settings)
    except UserError as error:
        report.failed(str(error))
        return 1
    if settings.dry_run:
        report.ready()
        return 0
    server.set_ulimit()
    return serve_app(app, listeners, report, settings.plain)


def prepare_process(settings: ProcessSettings) -> None:
    """Let this process be the place that the server's code expects: its folder, its variables, its configuration."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # Paths that its settings name lead from the project, wherever this process works.
    os.environ.update(roots_from_here(settings.folder.parent.parent))
    os.chdir(settings.folder)
    os.environ.update(settings.environment)
    os.environ[CONFIG_PATH_ENV_VAR] = settings.name
    set_process_config(config_view(settings))


def serve_app(app: ASGIApp, listeners: Sequence[socket.socket], report: Report, plain: Mapping[str, Any]) -> int:
    """Answer at these sockets until told to stop; the process's exit code."""
    server_process = ReportingServer(
        uvicorn_config(app, logs_requests=plain.get("uvicorn_logging_show_200_ok") is True), report
    )
    server_process.run(sockets=list(listeners))
    return 0 if server_process.started else 1


def build_server(settings: ProcessSettings) -> SimpleServer:
    """The server of a folder, with its typed settings and a client that knows the others."""
    cls = complete_server_class(load_module(settings), settings)
    server = cls(
        config=typed_config(cls, settings),
        server_client=ServerClient(
            head_server_config=settings.head, global_config_dict=config_view(settings)
        ).of_this_run(settings.run_token, settings.run_id, settings.shortcuts),
    )
    standing = context_of(server)
    standing.cookie_secret = settings.cookie_secret
    standing.secret_values = settings.secrets()
    standing.processes = settings.num_workers
    if settings.num_workers == 1:
        standing.life = secrets.token_hex(8)
    elif hook_of(server, "session_beginnings")() is not None:
        standing.siblings = SessionRouting(settings.name, settings.number, settings.sockets, settings.run_token)
        standing.life = standing.siblings.mark(secrets.token_hex(8))
        _check_reaches_sessions(server, settings)
    # Else nothing is kept of sessions, and each process answers for any of them.
    return server


def _check_reaches_sessions(server: SimpleServer, settings: ProcessSettings) -> None:
    if getattr(server.config, "expose_tools_over_mcp", False):
        raise ConfigError(
            f"{_origin(settings, 'expose_tools_over_mcp')}{settings.name}: {settings.num_workers} processes serve it, "
            "and calls over MCP do not find the one that has their session. Set num_workers: 1 in "
            "its block, or leave out expose_tools_over_mcp."
        )


def build_app(server: SimpleServer, settings: ProcessSettings) -> ASGIApp:
    """The server's app with liveness, inside the layer that answers for failures."""
    try:
        app = server.setup_webserver()
        expose_if_asked(server, app)
    except SignatureError as error:
        raise LaunchError(f"{settings.folder / settings.entrypoint}: {error}") from error
    server.setup_liveness(app)
    server.setup_profiling(app, ProfilingMiddlewareConfig.model_validate(settings.plain))
    server.setup_exception_middleware(app)
    server.setup_call_layer(app, settings.run_token, settings.run_id)
    return app


def load_module(settings: ProcessSettings) -> ModuleType:
    """Import the entrypoint; a package that it asks for in vain is told with the line that does so."""
    try:
        return _imported((settings.folder / settings.entrypoint).resolve(), settings)
    except ModuleNotFoundError as error:
        advice = "Install the package that provides it, or correct the import."
        if (settings.folder / "requirements.txt").exists():
            advice += (
                " What published folders import without listing it comes with pip install 'nemo-gym[full]'; "
                "+auto_install=true gives the folder an environment of its own."
            )
        raise LaunchError(f"{_asking_line(error)}: {error}. {advice}") from error


def _asking_line(error: ModuleNotFoundError) -> str:
    asking = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f"{asking[-1].filename}:{asking[-1].lineno}"


def _imported(entrypoint: Path, settings: ProcessSettings) -> ModuleType:
    """The module by its package name where that leads to this very file, else by the file."""
    root = settings.folder.parent.parent
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
    spec = importlib.util.spec_from_file_location(name, entrypoint)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def complete_server_class(module: ModuleType, settings: ProcessSettings) -> type[SimpleServer]:
    """The class that the entrypoint serves, with all that its base asks for."""
    cls = server_class(module, settings)
    if cls.__abstractmethods__:
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise LaunchError(f"{settings.folder / settings.entrypoint}: {cls.__name__} has to define {missing}.")
    return cls


def server_class(module: ModuleType, settings: ProcessSettings) -> type[SimpleServer]:
    """The class that the entrypoint starts with `run_webserver()`, else the only server class it defines."""
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
        f"{entrypoint}: several server classes are defined here ({names}). Say at the file's end which one is to be "
        f"served: if __name__ == '__main__': {leaves[-1].__name__}.run_webserver()"
    )


def _class_started_in(source: str) -> str | None:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "run_webserver"
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.value.id
    return None


def typed_config(cls: type[SimpleServer], settings: ProcessSettings) -> BaseServerConfig:
    """The block as the class's own settings; every problem is told with its file and line."""
    kind = cls.model_fields["config"].annotation
    assert inspect.isclass(kind)
    assert issubclass(kind, BaseServerConfig)
    values = {
        **settings.settings,
        "name": settings.name,
        "host": settings.host,
        "port": settings.port,
        "entrypoint": settings.entrypoint,
    }
    block = f"{settings.name}.{settings.type}.{settings.implementation}"
    context = {"folder": settings.folder, "checks_files": True}
    return parse_settings(kind, values, block=block, origins=settings.origins, context=context)


def config_view(settings: ProcessSettings) -> Any:
    """What this process may know of the configuration, in the shape of the whole."""
    others = {
        name: {type_: {implementation: {"host": host, "port": port}}}
        for name, (type_, implementation, host, port) in settings.addresses.items()
    }
    own = {
        settings.type: {settings.implementation: {**settings.settings, "host": settings.host, "port": settings.port}}
    }
    # Whoever makes a client of its own finds the token where a configuration would have it.
    token = {RUN_TOKEN_KEY: settings.run_token} if settings.run_token else {}
    view = OmegaConf.create(
        {
            **settings.plain,
            **published_defaults(settings.plain),
            **token,
            **others,
            settings.name: own,
            "head_server": settings.head.model_dump(),
        }
    )
    OmegaConf.set_readonly(view, True)
    return view


def _origin(settings: ProcessSettings, key: str) -> str:
    place = settings.origins.get(key)
    return f"{place}: " if place else ""


def uvicorn_config(app: ASGIApp, *, logs_requests: bool = False) -> uvicorn.Config:
    """How all of our servers are run."""
    config = uvicorn.Config(
        app,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=logs_requests,
        # Nobody stands between our servers; what such headers say would only be believed by mistake.
        proxy_headers=False,
        log_config=None,
        # That a server starts and stops is the launcher's to tell, once for all of them.
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        backlog=4096,
    )
    if logs_requests:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    return config


class ReportingServer(QuickShutdownServer):
    """Tells the launcher when requests are accepted."""

    def __init__(self, config: uvicorn.Config, report: Report) -> None:
        super().__init__(config)
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
