from unittest.mock import MagicMock

import pytest

from nemo_gym.server_utils import ServerClient
from resources_servers.shop_tools.app import ShopConfig, ShopResourcesServer


@pytest.fixture
def server() -> ShopResourcesServer:
    config = ShopConfig(host="0.0.0.0", port=8080, entrypoint="", name="", catalogue={"apple": 2, "pear": 3}, more=1)
    return ShopResourcesServer(config=config, server_client=MagicMock(spec=ServerClient), baskets={})
