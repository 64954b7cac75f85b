"""nemo_gym: environments for language-model agents as HTTP services, and the collection of their rollouts.

The names below are loaded on first access, so `import nemo_gym` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nemo_gym.version import __package_name__, __version__

if TYPE_CHECKING:
    from pathlib import Path

    from nemo_gym.calls.client import ServerClient as ServerClient
    from nemo_gym.calls.client import get_response_json as get_response_json
    from nemo_gym.calls.client import raise_for_status as raise_for_status
    from nemo_gym.calls.problems import failure_of_call as failure_of_call
    from nemo_gym.calls.problems import failure_of_reply as failure_of_reply
    from nemo_gym.calls.problems import reply_to as reply_to
    from nemo_gym.calls.relayed_metrics import relayed_metrics as relayed_metrics
    from nemo_gym.config.settings import AgentServerRef as AgentServerRef
    from nemo_gym.config.settings import BaseResourcesServerConfig as BaseResourcesServerConfig
    from nemo_gym.config.settings import BaseResponsesAPIAgentConfig as BaseResponsesAPIAgentConfig
    from nemo_gym.config.settings import BaseResponsesAPIModelConfig as BaseResponsesAPIModelConfig
    from nemo_gym.config.settings import BaseRunServerInstanceConfig as BaseRunServerInstanceConfig
    from nemo_gym.config.settings import BaseServerConfig as BaseServerConfig
    from nemo_gym.config.settings import Domain as Domain
    from nemo_gym.config.settings import ModelServerRef as ModelServerRef
    from nemo_gym.config.settings import ResourcesServerRef as ResourcesServerRef
    from nemo_gym.context.deadline import grace_period as grace_period
    from nemo_gym.context.rollout_id import current_rollout_id as current_rollout_id
    from nemo_gym.data.converting import convert_each as convert_each
    from nemo_gym.data.converting import convert_lines as convert_lines
    from nemo_gym.data.converting import convert_table as convert_table
    from nemo_gym.data.preparing import run_prepare as run_prepare
    from nemo_gym.data.preparing import shared_rows as shared_rows
    from nemo_gym.data.splits import Split as Split
    from nemo_gym.data.splits import split_rows as split_rows
    from nemo_gym.errors import AgentFailed as AgentFailed
    from nemo_gym.errors import DataError as DataError
    from nemo_gym.errors import EndpointError as EndpointError
    from nemo_gym.errors import EnvironmentFailed as EnvironmentFailed
    from nemo_gym.errors import InvalidTask as InvalidTask
    from nemo_gym.errors import JudgeFailed as JudgeFailed
    from nemo_gym.errors import ModelFailed as ModelFailed
    from nemo_gym.errors import OutOfTurn as OutOfTurn
    from nemo_gym.errors import Overloaded as Overloaded
    from nemo_gym.errors import RolloutCancelled as RolloutCancelled
    from nemo_gym.errors import RolloutError as RolloutError
    from nemo_gym.errors import RolloutTimedOut as RolloutTimedOut
    from nemo_gym.errors import ServerCallError as ServerCallError
    from nemo_gym.errors import ServerLost as ServerLost
    from nemo_gym.errors import ToolError as ToolError
    from nemo_gym.errors import UsageError as UsageError
    from nemo_gym.http.endpoint import NeMoGymAsyncOpenAI as NeMoGymAsyncOpenAI
    from nemo_gym.metrics import compute_pass_majority_metrics as compute_pass_majority_metrics
    from nemo_gym.metrics import compute_subset_metrics as compute_subset_metrics
    from nemo_gym.metrics import highest_k_metrics as highest_k_metrics
    from nemo_gym.paths import find as find_path
    from nemo_gym.paths import starting_dir as starting_dir
    from nemo_gym.published.single_turn import SingleAgentTurn as SingleAgentTurn
    from nemo_gym.published.single_turn import SingleAgentTurnConfig as SingleAgentTurnConfig
    from nemo_gym.schemas.chat import ChatCompletion as NeMoGymChatCompletion
    from nemo_gym.schemas.chat import ChatCompletionCreateParams as NeMoGymChatCompletionCreateParamsNonStreaming
    from nemo_gym.schemas.items import InputImage as NeMoGymResponseInputImage
    from nemo_gym.schemas.items import InputText as NeMoGymResponseInputText
    from nemo_gym.schemas.items import OutputItem as NeMoGymResponseOutputItem
    from nemo_gym.schemas.responses import Response as NeMoGymResponse
    from nemo_gym.schemas.responses import ResponseCreateParams as NeMoGymResponseCreateParamsNonStreaming
    from nemo_gym.schemas.responses import accumulate_response_usage as accumulate_response_usage
    from nemo_gym.schemas.rollout import AggregateMetrics as AggregateMetrics
    from nemo_gym.schemas.rollout import AggregateMetricsRequest as AggregateMetricsRequest
    from nemo_gym.schemas.rollout import BaseMultiRewardVerifyResponse as BaseMultiRewardVerifyResponse
    from nemo_gym.schemas.rollout import BaseRunRequest as BaseRunRequest
    from nemo_gym.schemas.rollout import BaseSeedSessionRequest as BaseSeedSessionRequest
    from nemo_gym.schemas.rollout import BaseSeedSessionResponse as BaseSeedSessionResponse
    from nemo_gym.schemas.rollout import BaseVerifyRequest as BaseVerifyRequest
    from nemo_gym.schemas.rollout import BaseVerifyResponse as BaseVerifyResponse
    from nemo_gym.schemas.rollout import ReverifyMode as ReverifyMode
    from nemo_gym.schemas.sessions import AgentCloseSessionResponse as AgentCloseSessionResponse
    from nemo_gym.schemas.sessions import AgentSeedSessionRequest as AgentSeedSessionRequest
    from nemo_gym.schemas.sessions import EpisodeId as EpisodeId
    from nemo_gym.schemas.sessions import ResourcesSeedSessionRequest as ResourcesSeedSessionRequest
    from nemo_gym.schemas.sessions import TaskId as TaskId
    from nemo_gym.schemas.stepped import STEP_REQUEST_ID_KEY as STEP_REQUEST_ID_KEY
    from nemo_gym.schemas.stepped import BaseResetRequest as BaseResetRequest
    from nemo_gym.schemas.stepped import BaseResetResponse as BaseResetResponse
    from nemo_gym.schemas.stepped import BaseStepRequest as BaseStepRequest
    from nemo_gym.schemas.stepped import BaseStepResponse as BaseStepResponse
    from nemo_gym.servers.agent import Body as Body
    from nemo_gym.servers.agent import SimpleResponsesAPIAgent as SimpleResponsesAPIAgent
    from nemo_gym.servers.agent_sessions import AgentSessionSetupError as AgentSessionSetupError
    from nemo_gym.servers.agent_sessions import AgentSessionState as AgentSessionState
    from nemo_gym.servers.composing import ComposingAgent as ComposingAgent
    from nemo_gym.servers.composing import ComposingAgentConfig as ComposingAgentConfig
    from nemo_gym.servers.composing import transcript_of as transcript_of
    from nemo_gym.servers.conversation import Conversation as Conversation
    from nemo_gym.servers.conversation import keep_if_failed as keep_if_failed
    from nemo_gym.servers.conversing import ConversingAgent as ConversingAgent
    from nemo_gym.servers.conversing import ConversingAgentConfig as ConversingAgentConfig
    from nemo_gym.servers.model import SimpleResponsesAPIModel as SimpleResponsesAPIModel
    from nemo_gym.servers.overridable import OverridableAgent as OverridableAgent
    from nemo_gym.servers.resources import SimpleResourcesServer as SimpleResourcesServer
    from nemo_gym.servers.sessions import SessionState as SessionState
    from nemo_gym.servers.stepped import SteppedResourcesServer as SteppedResourcesServer
    from nemo_gym.servers.stepped import turns_of as turns_of
    from nemo_gym.servers.tools.tool import INDEPENDENT_TOOLS_HEADER as INDEPENDENT_TOOLS_HEADER
    from nemo_gym.servers.tools.tool import Tool as Tool
    from nemo_gym.servers.tools.tool import is_callable_name as is_callable_name
    from nemo_gym.servers.tools.tool import tool as tool
    from nemo_gym.web.session_cookies import SESSION_ID_KEY as SESSION_ID_KEY

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
    "data.converting": ("convert_each", "convert_lines", "convert_table"),
    "data.preparing": ("run_prepare", "shared_rows"),
    "data.splits": ("Split", "split_rows"),
    "errors": (
        "AgentFailed", "DataError", "EndpointError", "EnvironmentFailed", "InvalidTask", "JudgeFailed", "ModelFailed",
        "OutOfTurn", "Overloaded", "RolloutCancelled", "RolloutError", "RolloutTimedOut", "ServerCallError",
        "ServerLost", "ToolError", "UsageError",
    ),
    "schemas.rollout": (
        "AggregateMetrics", "AggregateMetricsRequest", "BaseMultiRewardVerifyResponse", "BaseRunRequest",
        "BaseSeedSessionRequest", "BaseSeedSessionResponse", "BaseVerifyRequest", "BaseVerifyResponse",
        "ReverifyMode",
    ),
    "schemas.sessions": (
        "AgentCloseSessionResponse", "AgentSeedSessionRequest", "EpisodeId", "ResourcesSeedSessionRequest", "TaskId",
    ),
    "schemas.stepped": (
        "STEP_REQUEST_ID_KEY", "BaseResetRequest", "BaseResetResponse", "BaseStepRequest", "BaseStepResponse",
    ),
    "schemas.responses": ("accumulate_response_usage",),
    "servers.tools.tool": ("INDEPENDENT_TOOLS_HEADER", "Tool", "is_callable_name", "tool"),
    "web.session_cookies": ("SESSION_ID_KEY",),
    "servers.sessions": ("SessionState",),
    "servers.resources": ("SimpleResourcesServer",),
    "published.single_turn": ("SingleAgentTurn", "SingleAgentTurnConfig"),
    "servers.stepped": ("SteppedResourcesServer", "turns_of"),
    "servers.agent_sessions": ("AgentSessionSetupError", "AgentSessionState"),
    "servers.agent": ("Body", "SimpleResponsesAPIAgent"),
    "servers.composing": ("ComposingAgent", "ComposingAgentConfig", "transcript_of"),
    "servers.conversation": ("Conversation", "keep_if_failed"),
    "servers.conversing": ("ConversingAgent", "ConversingAgentConfig"),
    "servers.overridable": ("OverridableAgent",),
    "servers.model": ("SimpleResponsesAPIModel",),
    "calls.client": ("ServerClient", "get_response_json", "raise_for_status"),
    "context.rollout_id": ("current_rollout_id",),
    "context.deadline": ("grace_period",),
    "calls.problems": ("failure_of_call", "failure_of_reply", "reply_to"),
    "calls.relayed_metrics": ("relayed_metrics",),
    "paths": ("starting_dir",),
    "metrics": ("compute_pass_majority_metrics", "compute_subset_metrics", "highest_k_metrics"),
}  # fmt: skip

_RENAMED = {
    "NeMoGymAsyncOpenAI": ("http.endpoint", "NeMoGymAsyncOpenAI"),
    "NeMoGymChatCompletion": ("schemas.chat", "ChatCompletion"),
    "NeMoGymChatCompletionCreateParamsNonStreaming": ("schemas.chat", "ChatCompletionCreateParams"),
    "NeMoGymResponse": ("schemas.responses", "Response"),
    "NeMoGymResponseCreateParamsNonStreaming": ("schemas.responses", "ResponseCreateParams"),
    "NeMoGymResponseInputImage": ("schemas.items", "InputImage"),
    "NeMoGymResponseInputText": ("schemas.items", "InputText"),
    "NeMoGymResponseOutputItem": ("schemas.items", "OutputItem"),
    "find_path": ("paths", "find"),
}

# Only tools written for release 0.7 import these, so they are not in `__all__`.
_HELPERS = {
    "NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME": ("paths", "EXTRA_ROOTS_ENV_VAR"),
    "_augment_sys_path": ("paths", "augment_sys_path"),
    "_resolve_under_cwd_or_install": ("published.search_paths", "resolve_under_cwd_or_install"),
    "component_search_roots": ("published.search_paths", "component_search_roots"),
}
_PLACES = {name: (home, name) for home, names in _HOMES.items() for name in names} | _RENAMED
_PATHS = ("CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR")

__all__ = ["__package_name__", "__version__", *sorted([*_PLACES, *_PATHS])]  # noqa: PLE0604 - all of them are strings


def __getattr__(name: str) -> Any:
    if place := _PLACES.get(name) or _HELPERS.get(name):
        home, attribute = place
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
