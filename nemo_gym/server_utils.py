"""Published name of what lives in `nemo_gym.http` and `nemo_gym.servers.base`."""

from nemo_gym.config.models import DEFAULT_HEAD_SERVER_PORT
from nemo_gym.config.published import get_first_server_config_dict
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.http.client import ServerClient, get_response_json, raise_for_status
from nemo_gym.http.reply import Reply as ClientResponse
from nemo_gym.servers.base import BaseServer, SimpleServer
from nemo_gym.servers.sessions import SESSION_ID_KEY

HEAD_SERVER_KEY_NAME = "head_server"

__all__ = [
    "DEFAULT_HEAD_SERVER_PORT",
    "HEAD_SERVER_KEY_NAME",
    "SESSION_ID_KEY",
    "BaseServer",
    "BaseServerConfig",
    "ClientResponse",
    "ServerClient",
    "SimpleServer",
    "get_first_server_config_dict",
    "get_response_json",
    "raise_for_status",
]
