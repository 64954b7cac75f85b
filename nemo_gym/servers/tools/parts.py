"""Tool output that is not only text: images, sounds and files as content parts of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from nemo_gym.jsonl import dump_json, loads_exact
from nemo_gym.schemas.items import InputAudio, InputFile, InputImage, InputText, InputVideo

PARTS_HEADER = "x-nemo-gym-content-parts"
"""Header that marks a tool's response as a list of content parts instead of text."""

ToolOutput = str | list[object]
"""The `output` of a `function_call_output` item."""


def parts_response(result: object) -> Response | None:
    """Return the response for a tool's result if it is a list of content parts, or None for any other result."""
    kinds = (InputText, InputImage, InputFile, InputAudio, InputVideo)
    if not isinstance(result, list) or not result or not all(isinstance(part, kinds) for part in result):
        return None
    written = dump_json([part.model_dump(mode="json", exclude_none=True) for part in result])
    return Response(written, media_type="application/json", headers={PARTS_HEADER: "true"})


def output_of(body: bytes, headers: Mapping[str, str]) -> ToolOutput:
    """Return a tool's response as the output for the model."""
    if PARTS_HEADER not in headers:
        return body.decode("utf-8", "replace")
    parts: list[object] = loads_exact(body)
    return parts
