"""A model endpoint that speaks the OpenAI protocol, and the calls it answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.http.external import (
    RATE_LIMIT_ERROR_CODES,
    RETRY_ERROR_CODES,
    AnswerT,
    ExternalSession,
    Limits,
    RetryPolicy,
    as_written,
    external_session,
    parsed,
)
from nemo_gym.jsonl import dump_json, dump_up_to

__all__ = ["RATE_LIMIT_ERROR_CODES", "RETRY_ERROR_CODES", "NeMoGymAsyncOpenAI"]


class NeMoGymAsyncOpenAI(BaseModel):
    """Calls one endpoint; every method returns the parsed JSON object, or raises `EndpointError`.

    `internal` marks an endpoint that is one of our own servers: no proxy is used, and as it has tried again already,
    only a refused connection is tried again here. The key goes into the `Authorization` header, and into no message.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str
    """The address up to and including `/v1`."""
    api_key: str = Field(repr=False)
    internal: bool = False
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    timeout_s: float = Field(default=Limits().total_s, gt=0)
    """How long one try may take, in seconds."""
    tries: int = Field(default=RetryPolicy.tries, ge=1)
    """How often a call is made at most."""

    _session: ExternalSession | None = PrivateAttr(default=None)

    async def create_models(self, **kwargs: Any) -> dict[str, Any]:
        """`GET /models`: what the endpoint serves."""
        return await self._call("GET", self._url("models"), kwargs or None)

    async def create_chat_completion(self, **kwargs: Any) -> dict[str, Any]:
        """`POST /chat/completions`."""
        return await self._call("POST", self._url("chat/completions"), kwargs)

    async def create_completion(self, **kwargs: Any) -> dict[str, Any]:
        """`POST /completions`."""
        return await self._call("POST", self._url("completions"), kwargs)

    async def create_response(self, **kwargs: Any) -> dict[str, Any]:
        """`POST /responses`."""
        return await self._call("POST", self._url("responses"), kwargs)

    async def ask(self, path: str, asked: dict[str, Any], items: bytes | memoryview) -> bytes:
        """`POST /<path>` with the JSON of its `input`; the JSON object that the endpoint answers, as it is written."""
        body = b"".join((dump_up_to("input", asked), items, b"}"))
        return await self._answer("POST", self._url(path), body, as_written)

    async def create_tokenize(self, **kwargs: Any) -> dict[str, Any]:
        """`POST /tokenize`, which vLLM serves beside `/v1`, not under it."""
        root = self.base_url.rstrip("/").removesuffix("/v1")
        return await self._call("POST", f"{root}/tokenize", kwargs)

    async def aclose(self) -> None:
        """Make no more calls; the connections are closed when the last endpoint of this process has done so."""
        session, self._session = self._session, None
        if session is not None:
            await session.leave(self)

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    async def _call(self, method: str, url: str, asked: dict[str, Any] | None) -> dict[str, Any]:
        body = None
        if asked is not None:
            body = dump_json(asked)
            # The keywords of one call: thousands may wait for their answers, and need not hold what they asked.
            asked.clear()
        return await self._answer(method, url, body, parsed)

    async def _answer(
        self, method: str, url: str, body: bytes | None, read: Callable[[bytes], AnswerT | None]
    ) -> AnswerT:
        session = external_session()
        if session is not self._session:
            self._session = session
            session.join(self)
        return await session.call(
            method,
            url,
            read=read,
            body=body,
            headers={"Authorization": f"Bearer {self.api_key}", **self.default_headers},
            is_ours=self.internal,
            limits=Limits(silence_s=self.timeout_s, total_s=self.timeout_s),
            retry=_retry_policy(self.tries, self.internal),
        )


@lru_cache
def _retry_policy(tries: int, is_ours: bool) -> RetryPolicy:
    return RetryPolicy(tries=tries, statuses=frozenset(() if is_ours else RETRY_ERROR_CODES))
