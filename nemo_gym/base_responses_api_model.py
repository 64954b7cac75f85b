"""Public import path of `nemo_gym.servers.model` and `nemo_gym.capture`; re-exports only."""

from nemo_gym.capture.middleware import CaptureMiddleware as _CaptureMiddleware
from nemo_gym.capture.records import ModelCallRecord
from nemo_gym.capture.store import CaptureStore
from nemo_gym.config.settings import BaseResponsesAPIModelConfig
from nemo_gym.published.captured_calls import (
    aggregate_model_call_metrics,
    merge_model_call_capture_into_record,
    read_model_call_records,
)
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.model_servers import orjson_dispatch_response as _orjson_dispatch_response
from nemo_gym.published.observability import ModelCallCaptureConfig
from nemo_gym.published.server_folders import start_model_execution
from nemo_gym.servers.model import BaseResponsesAPIModel, Body, SimpleResponsesAPIModel

__all__ = [
    "BaseResponsesAPIModel", "BaseResponsesAPIModelConfig", "Body", "CaptureStore", "ModelCallCaptureConfig",
    "ModelCallRecord", "SimpleResponsesAPIModel", "_CaptureMiddleware", "_orjson_dispatch_response",
    "aggregate_model_call_metrics", "merge_model_call_capture_into_record", "read_model_call_records",
    "start_model_execution",
]  # fmt: skip
