"""The app through a socket and in this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from nemo_gym.http.internal import InternalClient
from nemo_gym.http.local import LocalApp, LocalClient
from nemo_gym.servers.serve import uvicorn_config
from tests.http.local.app import new_app, noted


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the app listens, in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn_config(new_app()))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        serving.start()
        while not server.started:
            time.sleep(0.005)
        yield listener.getsockname()[1]
        server.should_exit = True
        serving.join(10)


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    noted.clear()


@pytest.fixture
def local(port: int) -> LocalClient:
    return LocalClient({("127.0.0.1", port): LocalApp(new_app(), {"kept": "by the lifespan"})})


@pytest.fixture(params=["through a socket", "in this process"])
def client(request, local) -> InternalClient:
    return local if request.param == "in this process" else InternalClient()
