from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from resources_servers.opened_library.app import OpenedLibraryResourcesServer, OpenedLibraryResourcesServerConfig


@pytest.fixture
def server() -> OpenedLibraryResourcesServer:
    config = OpenedLibraryResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="", titles=["Ulysses"])
    return OpenedLibraryResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))


def test_database_is_open_while_the_app_runs(server: OpenedLibraryResourcesServer) -> None:
    assert server.database is None
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/find_title", json={"starts_with": "Ul"}).json() == {"title": "Ulysses"}
        assert client.post("/find_title", json={"starts_with": "X"}).json() == {"title": None}
        assert server.database is not None
    assert server.database is None
