"""Serve the viewer until Ctrl-C, and open it in a browser."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from nemo_gym.errors import PortTakenError, UsageError
from nemo_gym.rollouts.control.calling import ask_run
from nemo_gym.viewer.access import Access
from nemo_gym.viewer.app import create_app
from nemo_gym.viewer.library import Library
from nemo_gym.viewer.live import Streams


def serve(library: Library, *, host: str, port: int, opens_browser: bool, say: Callable[[str], None]) -> None:
    """Serve the viewer until Ctrl-C. `say` prints its URL. When a browser has used a URL, `say` prints another one."""
    listener = _listener(host, port)
    access = Access(
        host, listener.getsockname()[1], on_used=lambda address: say(f"Connected. For another browser: {address}")
    )
    app = create_app(library, access, control=ask_run)
    config = uvicorn.Config(
        # Use h11, because httptools accepts headers of any size, and other users of the machine can send requests.
        app, http="h11", ws="none", lifespan="off", access_log=False, server_header=False, proxy_headers=False,
        log_config=None, log_level="warning", timeout_graceful_shutdown=1,
    )  # fmt: skip

    def greet() -> None:
        say(f"Open {access.address} (Ctrl-C ends the viewer)")
        if opens_browser and _has_display():
            # Use a thread, because opening some browsers blocks until they are closed.
            threading.Thread(target=webbrowser.open, args=(access.address,), daemon=True).start()

    server = _Server(config, app.state.streams, greet)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that closes its event streams when it stops. Open streams would delay the shutdown."""

    def __init__(self, config: uvicorn.Config, streams: Streams, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._streams = streams
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.closing.set()
        await super().shutdown(sockets)


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(
            f"--host {host}: the address is not known ({error}). Pass an address of this machine."
        ) from error
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        raise PortTakenError(
            f"the viewer cannot listen on {host}, port {port} ({problem}). Pass another --port, or leave out --port "
            "to use a free port."
        ) from error


def _has_display() -> bool:
    """Return whether a graphical browser can open. If not, `webbrowser` would start a text browser."""
    if sys.platform != "linux" or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
