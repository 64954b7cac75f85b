"""Client for a model endpoint that uses the OpenAI protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

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
from nemo_gym.jsonl import JsonObject, dump_json, dump_up_to

__all__ = ["RATE_LIMIT_ERROR_CODES", "RETRY_ERROR_CODES", "NeMoGymAsyncOpenAI"]


class NeMoGymAsyncOpenAI(BaseModel):
    """Client for one endpoint. Every method returns the parsed JSON object, or raises `EndpointError`.

    `internal` marks one of our own servers: it is called without a proxy. It retries failures itself, so only refused
    connections are retried here. The key is sent in the `Authorization` header and never appears in messages.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str
    """The address up to and including `/v1`."""
    api_key: str = Field(repr=False)
    internal: bool = False
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    timeout_s: float = Field(default=Limits().total_s, gt=0)
    """The timeout of one try, in seconds."""
    tries: int = Field(default=RetryPolicy.tries, ge=1)
    """The maximum number of tries for one call."""

    _session: ExternalSession | None = PrivateAttr(default=None)

    async def create_models(self, **kwargs: object) -> JsonObject:
        """Call `GET /models`, which lists the models of the endpoint."""
        return await self._call("GET", self._url("models"), kwargs or None)

    async def create_chat_completion(self, **kwargs: object) -> JsonObject:
        return await self._call("POST", self._url("chat/completions"), kwargs)

    async def create_completion(self, **kwargs: object) -> JsonObject:
        return await self._call("POST", self._url("completions"), kwargs)

    async def create_response(self, **kwargs: object) -> JsonObject:
        return await self._call("POST", self._url("responses"), kwargs)

    async def ask(self, path: str, asked: JsonObject, items: bytes | memoryview) -> bytes:
        """Call `POST /<path>` with `input` given as JSON text. Return the reply's JSON object as text, unparsed."""
        body = b"".join((dump_up_to("input", asked), items, b"}"))
        return await self._answer("POST", self._url(path), body, as_written)

    async def create_tokenize(self, **kwargs: object) -> JsonObject:
        """Call `POST /tokenize`, which vLLM serves outside `/v1`."""
        root = self.base_url.rstrip("/").removesuffix("/v1")
        return await self._call("POST", f"{root}/tokenize", kwargs)

    async def aclose(self) -> None:
        """Leave the shared session. The last client of the event loop to leave closes the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.leave(self)

    def _url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    async def _call(self, method: str, url: str, asked: JsonObject | None) -> JsonObject:
        body = None
        if asked is not None:
            body = dump_json(asked)
            # Free the request data, because thousands of calls may be waiting for their replies.
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
