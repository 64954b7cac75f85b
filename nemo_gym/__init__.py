"""nemo_gym: environments that language-model agents act in, as HTTP services, and the rollouts they earn.

The names below are loaded when they are first asked for, so `import nemo_gym` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nemo_gym.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    CACHE_DIR: Path
    PARENT_DIR: Path
    RESULTS_DIR: Path
    ROOT_DIR: Path
    WORKING_DIR: Path

_HOMES = {
    "config.settings": (
        "AgentServerRef", "BaseResourcesServerConfig", "BaseResponsesAPIAgentConfig", "BaseResponsesAPIModelConfig",
        "BaseRunServerInstanceConfig", "BaseServerConfig", "Domain", "ModelServerRef", "ResourcesServerRef",
    ),
    "errors": (
        "AgentFailed", "DataError", "EndpointError", "EnvironmentFailed", "JudgeFailed", "ModelFailed",
        "ServerCallError", "ToolError",
    ),
    "schemas.rollout": (
        "AggregateMetrics", "AggregateMetricsRequest", "BaseMultiRewardVerifyResponse", "BaseRunRequest",
        "BaseSeedSessionRequest", "BaseSeedSessionResponse", "BaseVerifyRequest", "BaseVerifyResponse",
        "ReverifyMode",
    ),
    "schemas.responses": ("accumulate_response_usage",),
    "servers.tools": ("Tool", "is_callable_name", "tool"),
    "servers.sessions": ("SESSION_ID_KEY", "SessionState"),
    "servers.resources": ("SimpleResourcesServer",),
    "servers.agent": ("Body", "SimpleResponsesAPIAgent"),
    "servers.model": ("SimpleResponsesAPIModel",),
    "http.client": ("ServerClient", "get_response_json", "raise_for_status"),
    "http.correlation": ("current_rollout_id",),
    "http.problems": ("failure_of_reply",),
    "metrics": ("compute_pass_majority_metrics", "compute_subset_metrics", "highest_k_metrics"),
}  # fmt: skip

_RENAMED = {
    "NeMoGymAsyncOpenAI": ("http.endpoint", "NeMoGymAsyncOpenAI"),
    "NeMoGymChatCompletion": ("schemas.chat", "ChatCompletion"),
    "NeMoGymChatCompletionCreateParamsNonStreaming": ("schemas.chat", "ChatCompletionCreateParams"),
    "NeMoGymResponse": ("schemas.responses", "Response"),
    "NeMoGymResponseCreateParamsNonStreaming": ("schemas.responses", "ResponseCreateParams"),
}

_PLACES = {name: (home, name) for home, names in _HOMES.items() for name in names} | _RENAMED
_PATHS = ("CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR")

__all__ = ["__version__", *sorted([*_PLACES, *_PATHS])]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        home, attribute = _PLACES[name]
        value = getattr(importlib.import_module(f"nemo_gym.{home}"), attribute)
    elif name in _PATHS:
        value = _path(name)
    else:
        raise AttributeError(f"module 'nemo_gym' has no attribute '{name}'")
    globals()[name] = value
    return value


def _path(name: str) -> Path:
    from nemo_gym import paths

    return {
        "ROOT_DIR": paths.PACKAGE_DIR,
        "PARENT_DIR": paths.INSTALL_ROOT,
        "WORKING_DIR": paths.working_dir(),
        "CACHE_DIR": paths.working_dir() / "cache",
        "RESULTS_DIR": paths.working_dir() / "results",
    }[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
