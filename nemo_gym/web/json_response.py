"""A response of JSON that is already written."""

from __future__ import annotations

from starlette.responses import Response

from nemo_gym.http.reply import JSON_HEADER


class WrittenJson(Response):
    """JSON as bytes, with status 200. It takes half as long to create as its base class, whose headers are checked."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON_HEADER]
