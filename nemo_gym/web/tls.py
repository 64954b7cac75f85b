"""The TLS listeners of a uvicorn server, which itself can only have TLS on all of its sockets or on none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import uvicorn

from nemo_gym.config.tls import Tls
from nemo_gym.http.tls import server_context

HANDSHAKE_S = 10.0
"""Timeout of a TLS handshake. A caller that sends nothing occupies a connection for this long."""
CLOSE_S = 2.0
"""Seconds in which a caller must confirm the end of a TLS connection."""


async def listen_with_tls(server: uvicorn.Server, listeners: Iterable[socket.socket], tls: Tls) -> None:
    """Serve TLS on `listeners`. Call this after the server has started its plain listeners."""
    config, context = server.config, server_context(tls)

    def new_connection() -> asyncio.Protocol:
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=server.server_state, app_state=server.lifespan.state
        )

    for listener in listeners:
        server.servers.append(
            await asyncio.get_running_loop().create_server(
                new_connection,
                sock=listener,
                ssl=context,
                backlog=config.backlog,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        )
