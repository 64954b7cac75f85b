from unittest.mock import MagicMock

from nemo_gym.server_utils import ServerClient
from resources_servers.coin_row.app import CoinRowConfig, CoinRowServer


def test_its_own_workers() -> None:
    config = CoinRowConfig(host="0.0.0.0", port=8080, entrypoint="", name="", workers=["ann"])
    server = CoinRowServer(config=config, server_client=MagicMock(spec=ServerClient))
    assert server.config.workers == ["ann"]
    assert server.setup_webserver() is not None
