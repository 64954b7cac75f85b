"""Public import path of the server base classes, the server client and HTTP helpers; re-exports only."""

from nemo_gym.calls.client import ServerClient, ServerStatus, get_response_json, raise_for_status
from nemo_gym.config.models import DEFAULT_HEAD_SERVER_PORT
from nemo_gym.config.process import ServerInstance as ServerInstanceDisplayConfig
from nemo_gym.config.settings import BaseServerConfig
from nemo_gym.context.rollout_id import apply_rollout_prefix, rollout_path_prefix
from nemo_gym.http.reply import Reply as ClientResponse
from nemo_gym.http.retries import MAX_NUM_TRIES
from nemo_gym.published.global_config import HEAD_SERVER_KEY_NAME, get_first_server_config_dict, get_global_config_dict
from nemo_gym.published.head_server import HeadServer
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.requests import (
    GlobalAIOHTTPAsyncClientConfig,
    get_global_aiohttp_client,
    global_aiohttp_client_exit,
    is_global_aiohttp_client_request_debug_enabled,
    is_global_aiohttp_client_setup,
    request,
    set_global_aiohttp_client,
)
from nemo_gym.published.server_folders import (
    UvicornLoggingConfig,
    initialize_ray,
    is_nemo_gym_fastapi_entrypoint,
    is_nemo_gym_fastapi_worker,
)
from nemo_gym.published.whole_config import get_server_url, setup_server_client
from nemo_gym.servers.base import BaseServer, SimpleServer
from nemo_gym.web.profiling import ProfilingMiddlewareConfig
from nemo_gym.web.session_cookies import SESSION_ID_KEY

__all__ = [
    "DEFAULT_HEAD_SERVER_PORT", "HEAD_SERVER_KEY_NAME", "MAX_NUM_TRIES", "SESSION_ID_KEY", "BaseServer",
    "BaseServerConfig", "ClientResponse", "GlobalAIOHTTPAsyncClientConfig", "HeadServer", "ProfilingMiddlewareConfig",
    "ServerClient", "ServerInstanceDisplayConfig", "ServerStatus", "SimpleServer", "UvicornLoggingConfig",
    "apply_rollout_prefix", "get_first_server_config_dict", "get_global_aiohttp_client", "get_global_config_dict",
    "get_response_json", "get_server_url", "global_aiohttp_client_exit", "initialize_ray",
    "is_global_aiohttp_client_request_debug_enabled", "is_global_aiohttp_client_setup",
    "is_nemo_gym_fastapi_entrypoint", "is_nemo_gym_fastapi_worker", "raise_for_status", "request",
    "rollout_path_prefix", "set_global_aiohttp_client", "setup_server_client",
]  # fmt: skip
