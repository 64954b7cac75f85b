"""Names that model servers of release 0.7 import. Here, the framework itself records token ids and writes streams."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import Response

from nemo_gym.dialects.lenient import plain_request
from nemo_gym.jsonl import dump_json
from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.web.json_response import WrittenJson


class ExternalCaptureHandler:
    """The type of a recorder that a model server calls itself. This package has none, so it is only an annotation."""


def current_capture_context() -> None:
    """Return None, because a model server need not record its own token ids."""


def token_id_capture_config(config: object) -> None:
    """Return None, because a model server need not record its own token ids."""


def make_external_capture_handler(*settings: object, **named: object) -> None:
    """Return None, because a model server need not record its own token ids."""


def orjson_dispatch_response(answer: object) -> Response:
    """Return an HTTP response for a model server's answer. A response is returned unchanged."""
    if isinstance(answer, Response):
        return answer
    return WrittenJson(dump_json(answer.model_dump(mode="json") if isinstance(answer, BaseModel) else answer))


def sanitize_streaming_responses_body(body: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of a streaming Responses request that every model server supports."""
    return plain_request(body, ResponseCreateParams.model_fields).fields
