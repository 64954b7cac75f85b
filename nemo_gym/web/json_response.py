"""A response whose body is JSON that is already serialized."""

from __future__ import annotations

from starlette.responses import JSONResponse

from nemo_gym.http.reply import JSON_HEADER


class WrittenJson(JSONResponse):
    """A response with status 200 and serialized JSON. It skips Starlette's header checks, to save time."""

    def __init__(self, body: bytes) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), JSON_HEADER]
