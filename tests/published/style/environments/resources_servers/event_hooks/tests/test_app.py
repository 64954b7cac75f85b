from unittest.mock import MagicMock

from fastapi.testclient import TestClient

from nemo_gym.server_utils import ServerClient
from resources_servers.event_hooks.app import EventHooksResourcesServer, EventHooksResourcesServerConfig


def test_hooks_are_called_at_both_ends() -> None:
    config = EventHooksResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="")
    server = EventHooksResourcesServer(config=config, server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.get("/reverify_mode").json() == "unknown"
        assert server._events == ["startup"]
    assert server._events == ["startup", "shutdown"]
    assert server._ticks > 0
    assert server._ticker.cancelled() or server._ticker.cancelling()
