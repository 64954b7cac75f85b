from unittest.mock import MagicMock, patch

import pytest
from omegaconf import OmegaConf

from nemo_gym.config_types import BaseServerConfig, ModelServerRef
from nemo_gym.global_config import DictConfig
from nemo_gym.server_utils import ServerClient, get_server_url
from resources_servers.address_book.app import AddressBookResourcesServer, AddressBookResourcesServerConfig

GLOBAL_CONFIG = {
    "policy_model": {"responses_api_models": {"some_model": {"entrypoint": "app.py", "host": "10.0.0.7", "port": 81}}}
}


def _server(server_client) -> AddressBookResourcesServer:
    config = AddressBookResourcesServerConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="",
        interpolated="-",
        model_server=ModelServerRef(type="responses_api_models", name="policy_model"),
    )
    return AddressBookResourcesServer(config=config, server_client=server_client)


def test_the_config_of_a_real_client_is_read() -> None:
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=11000),
        global_config_dict=OmegaConf.create(GLOBAL_CONFIG),
    )
    server = _server(client)
    assert isinstance(server._model_config(), DictConfig)
    assert server.server_client._build_server_base_url(server._model_config()) == "http://10.0.0.7:81"
    assert server.config.interpolated == "-"


def test_the_config_of_a_mock_is_read() -> None:
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = OmegaConf.create(GLOBAL_CONFIG)
    assert _server(client)._model_config()["port"] == 81
    bare = MagicMock(spec=ServerClient)
    _server(bare).setup_webserver()


def test_a_patched_global_config_is_looked_at() -> None:
    with patch("nemo_gym.server_utils.get_global_config_dict", return_value=OmegaConf.create(GLOBAL_CONFIG)):
        assert get_server_url("policy_model") == "http://10.0.0.7:81"
        with pytest.raises(Exception, match="nobody"):
            get_server_url("nobody")
