from unittest.mock import MagicMock

import app as app_module
from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient, is_nemo_gym_fastapi_entrypoint


def test_the_module_is_imported_without_being_served() -> None:
    assert not is_nemo_gym_fastapi_entrypoint(app_module.__file__)
    assert not hasattr(app_module, "app")


def test_a_route_of_a_nested_function() -> None:
    config = app_module.PooledCounterResourcesServerConfig(
        host="0.0.0.0", port=8080, entrypoint="", name="", num_workers=2
    )
    server = app_module.PooledCounterResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    client = TestClient(server.setup_webserver())
    assert client.post("/count", json={"text": "abc"}).json()["letters"] == 3
    assert client.get("/docs").status_code == 200
    assert "/count" in client.get("/openapi.json").json()["paths"]
