"""A process that has several servers: each answers at its own address, and calls between them need no socket."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.config.process import GroupSettings, ProcessSettings
from nemo_gym.config.published import tell_process
from nemo_gym.errors import LaunchError, UserError
from nemo_gym.http.local import LocalApp, LocalClient
from nemo_gym.paths import roots_from_here
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.serve import Report, build_app, build_server, config_view, prepare_process, serve_app

Apps = dict[tuple[str, int], LocalApp]


class _Member(NamedTuple):
    settings: ProcessSettings
    server: SimpleServer
    local: LocalApp


def serve_together(group: GroupSettings, listeners: Sequence[socket.socket], report: Report) -> int:
    """Serve all of them until told to stop; the process's exit code."""
    home = Path.cwd()
    try:
        folders = {each.folder for each in group.members}
        members = [_built(settings, home, folders) for settings in _profiled_once(group.members)]
    except UserError as error:
        report.failed(str(error))
        return 1
    os.chdir(home)
    os.environ.update(roots_from_here(*(each.settings.folder.parent.parent for each in members)))
    view = _view_of([each.settings for each in members])
    tell_process(view)
    apps = {(each.settings.host, each.settings.port): each.local for each in members}
    for member in members:
        # What a server's client knows is what its process knows, also where that is more.
        member.server.server_client.global_config_dict = view
        member.server.server_client.call_here(LocalClient(apps))
    doors = {_door(listener): member.local for listener, member in zip(listeners, _owners(members), strict=True)}
    first = members[0]
    first.server.set_ulimit()
    return serve_app(_ByDoor(members, doors, home), listeners, report, first.settings.plain)


def _profiled_once(members: Sequence[ProcessSettings]) -> Iterator[ProcessSettings]:
    """A process has one profile, of all that it does; it bears the name of its first server."""
    for number, settings in enumerate(members):
        if number == 0 or not settings.plain.get("profiling_enabled"):
            yield settings
        else:
            yield settings.model_copy(update={"plain": {**settings.plain, "profiling_enabled": False}})


def _owners(members: Sequence[_Member]) -> Iterator[_Member]:
    """Whose each listener is: every member has one at its address, and one of its own where there are siblings."""
    for member in members:
        yield from [member] * (2 if member.settings.sockets else 1)


def _built(settings: ProcessSettings, home: Path, folders: Container[Path]) -> _Member:
    os.chdir(home)
    prepare_process(settings)
    known = set(sys.modules)
    server = build_server(settings)
    _check_modules(settings, known, folders)
    return _Member(settings, server, LocalApp(build_app(server, settings)))


def _check_modules(settings: ProcessSettings, known: Container[str], folders: Container[Path]) -> None:
    """Two folders may each have a module `utils`, and one process has but one module of a name."""
    for path in (*settings.folder.glob("*.py"), *settings.folder.glob("*/__init__.py")):
        depth = len(path.relative_to(settings.folder).parts)
        name = path.stem if depth == 1 else path.parent.name
        file = getattr(sys.modules.get(name), "__file__", None) if name in known else None
        # What is no server's own, a module of the standard library for one, is the same in every process.
        if file and Path(file) != path and Path(file).parents[depth - 1] in folders:
            raise LaunchError(
                f"{settings.name}: {path} and {file} are modules of one name, and servers that are together share "
                f"their modules. Let one of them run separately: placement: separate in the block of {settings.name}."
            )


def _view_of(members: Sequence[ProcessSettings]) -> Any:
    """What the process may know of the configuration: all that its members may."""
    own: dict[str, Any] = {}
    for settings in members:
        own[settings.name] = config_view(settings)[settings.name]
    view = OmegaConf.create({**config_view(members[0]), **own})
    OmegaConf.set_readonly(view, True)
    return view


def _door(listener: socket.socket) -> tuple[str, int] | str:
    name = listener.getsockname()
    return name if isinstance(name, str) else (str(name[0]), int(name[1]))


class _ByDoor:
    """Lets the app answer at whose socket a request came in; all of them start and end with the process."""

    def __init__(self, members: Sequence[_Member], doors: dict[tuple[str, int] | str, LocalApp], home: Path) -> None:
        self._members = members
        self._home = home
        self._by_path = {door: local for door, local in doors.items() if isinstance(door, str)}
        self._by_address = {door: local for door, local in doors.items() if not isinstance(door, str)}
        # A server that listens on all addresses is called at any of them, but its port is its own.
        self._by_port = {door[1]: local for door, local in self._by_address.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        host, port = scope["server"]
        door = self._by_path.get(host) if port is None else self._by_address.get((host, port))
        local = door or self._by_port[port]
        scope["state"] = dict(local.state)
        await local.app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with AsyncExitStack() as stack:
                for member in self._members:
                    # As in a process of its own, it begins where its files are.
                    os.chdir(member.settings.folder)
                    member.local.state.update(await stack.enter_async_context(_lifespan(member.local.app)))
                os.chdir(self._home)
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except _StartupFailed as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class _StartupFailed(Exception):
    pass


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[dict[str, Any]]:
    """An app from its startup to its shutdown; what it keeps for its requests. Raises `_StartupFailed`."""
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    state: dict[str, Any] = {}
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}

    async def run() -> None:
        try:
            await app(scope, to_app.get, from_app.put)
        finally:
            await from_app.put({"type": "ended"})

    living = asyncio.create_task(run())
    try:
        await to_app.put({"type": "lifespan.startup"})
        answer = await from_app.get()
        if answer["type"] != "lifespan.startup.complete":
            raise _StartupFailed(answer.get("message", "the app ended while it started"))
        yield state
        await to_app.put({"type": "lifespan.shutdown"})
        await from_app.get()
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
