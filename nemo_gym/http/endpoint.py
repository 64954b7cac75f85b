"""Client for a model endpoint that uses the OpenAI protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.config.secret_values import SecretValues
from nemo_gym.context.current import current_work
from nemo_gym.context.policy import Policy
from nemo_gym.context.rollout_id import current_rollout_id
from nemo_gym.errors import EndpointError
from nemo_gym.http.external import TIMEOUTS, AnswerT, ExternalSession, Send, external_session
from nemo_gym.http.model_replies import (
    parsed,
    parsed_completion,
    parsed_message,
    parsed_response,
    written_response,
)
from nemo_gym.http.reply import Timeouts
from nemo_gym.http.reply_cache import current_cache
from nemo_gym.http.retries import RATE_LIMIT_ERROR_CODES, RETRIED, RETRY_ERROR_CODES, RetryPolicy
from nemo_gym.jsonl import JsonObject, dump_json, dump_up_to

__all__ = ["RATE_LIMIT_ERROR_CODES", "RETRY_ERROR_CODES", "NeMoGymAsyncOpenAI"]


class NeMoGymAsyncOpenAI(BaseModel):
    """Client for one endpoint. Calls return the parsed JSON object (`ask` its text), or raise `EndpointError`.

    `internal` marks a nemo_gym server, which is called without a proxy. nemo_gym's servers retry failures
    themselves, so for them this client retries only failed connections. The API key never appears in messages.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    base_url: str
    """The address up to and including `/v1`."""
    api_key: str = Field(repr=False)
    internal: bool = False
    key_header: str = "Authorization"
    """The header that carries the API key. The prefix `Bearer` is added only in `Authorization`."""
    default_headers: dict[str, str] = Field(default_factory=dict, repr=False)
    default_query: dict[str, str] = Field(default_factory=dict, repr=False)
    """Query parameters of every call to `base_url`, such as Azure's `api-version`."""
    timeout_s: float = Field(default=TIMEOUTS.total_s, gt=0)
    """The timeout of one try, in seconds."""
    tries: int = Field(default=RetryPolicy.tries, ge=1)
    """The maximum number of tries for one call."""
    session_header: str | None = None
    """The header with the current rollout's id, by which routers send all calls of a rollout to one engine."""
    follows_policy: bool = False
    """Whether the policy that a rollout's row names, if any, replaces the endpoint, the key and the model."""

    _session: ExternalSession | None = PrivateAttr(default=None)

    @property
    def url(self) -> str:
        """The address for calls of the current rollout: `base_url`, unless the rollout's row names another address."""
        return self._base_for(self._policy())

    @property
    def send(self) -> Send | None:
        """The transport of a subclass that does not use HTTP itself. Retries and the cache apply to it, too."""
        return None

    async def create_models(self, **kwargs: object) -> JsonObject:
        """Call `GET /models`, which lists the models of the endpoint."""
        return await self._call("GET", "/models", kwargs or None)

    async def create_chat_completion(self, **kwargs: object) -> JsonObject:
        return await self._call("POST", "/chat/completions", kwargs, read=parsed_completion)

    async def create_completion(self, **kwargs: object) -> JsonObject:
        read = partial(parsed_completion, accepts_parts=bool(kwargs.pop("accepts_parts", False)))
        return await self._call("POST", "/completions", kwargs, read=read)

    async def create_response(self, **kwargs: object) -> JsonObject:
        return await self._call("POST", "/responses", kwargs, read=parsed_response)

    async def create_message(
        self, *, read: Callable[[bytes], JsonObject | None] = parsed_message, **kwargs: object
    ) -> JsonObject:
        """Call `POST /messages` of Anthropic's protocol. `read` parses the reply, which may be an event stream."""
        return await self._call("POST", "/messages", kwargs, read=read)

    async def ask(self, path: str, asked: Mapping[str, object], items: bytes | memoryview) -> bytes:
        """Call `POST /<path>` with the JSON text `items` as `input`. Return the response as JSON text, unparsed."""
        policy = self._policy()
        body = b"".join((dump_up_to("input", _with_model(asked, policy)), items, b"}"))
        # Free the items, which are as large as the body.
        del items
        return await self._answer("POST", f"{self._base_for(policy)}/{path}", body, written_response, policy)

    async def create_tokenize(self, **kwargs: object) -> JsonObject:
        """Call `POST /tokenize`, which vLLM serves outside `/v1`."""
        return await self._call("POST", "/tokenize", kwargs, outside="/v1")

    async def create_metrics(self) -> str:
        """Call `GET /metrics`, which engines serve outside `/v1`, and return its text."""
        url = f"{self._base_for(None).removesuffix('/v1')}/metrics"
        return await self._answer("GET", url, None, bytes.decode, None)

    async def post(self, path: str, **kwargs: object) -> JsonObject:
        """Call `POST <path>` outside `/v1`, such as vLLM's `/score`. With an empty path, call `base_url` itself."""
        return await self._call("POST", path, kwargs, outside="/v1" if path else "")

    async def aclose(self) -> None:
        """Stop using the event loop's shared session. The last client to do so closes the session's connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.leave(self)

    def _policy(self) -> Policy | None:
        return current_work().policy if self.follows_policy else None

    def _base_for(self, policy: Policy | None) -> str:
        return (self.base_url if policy is None else policy.base_url or self.base_url).rstrip("/")

    def _headers_for(self, policy: Policy | None) -> dict[str, str]:
        rollout_id = current_rollout_id() if self.session_header else None
        headers = {self.session_header: rollout_id} if self.session_header and rollout_id else {}
        if policy is None or not policy.base_url:
            # Send the configured key and headers only to the configured address, because they are secrets.
            headers |= {**self._header_of(self.api_key), **self.default_headers}
        return headers | self._header_of(policy.api_key) if policy and policy.api_key else headers

    def _header_of(self, key: str) -> dict[str, str]:
        return {self.key_header: f"Bearer {key}" if self.key_header.lower() == "authorization" else key}

    async def _call(
        self,
        method: str,
        path: str,
        asked: dict[str, object] | None,
        *,
        outside: str = "",
        read: Callable[[bytes], JsonObject | None] = parsed,
    ) -> JsonObject:
        policy, body = self._policy(), None
        if asked is not None:
            body = dump_json(_with_model(asked, policy))
            # Free the request data, because thousands of calls may be waiting for their replies.
            asked.clear()
        url = self._base_for(policy).removesuffix(outside) + path
        return await self._answer(method, url, body, read, policy)

    async def _answer(
        self,
        method: str,
        url: str,
        body: bytes | None,
        read: Callable[[bytes], AnswerT | None],
        policy: Policy | None,
    ) -> AnswerT:
        if policy is not None:
            read = _masked(read, policy.api_key)
        if self.default_query and not (policy and policy.base_url):
            url = f"{url}?{urlencode(self.default_query)}"
        cache = None if body is None else current_cache.get()
        if cache is not None and body is not None:
            key = cache.key_of(url, body)
            found = await cache.read(key)
            # Earlier versions stored failed and unfinished responses, for which `read` raises an error.
            with suppress(EndpointError):
                if found is not None and (cached := read(found)) is not None:
                    return cached
        session = external_session()
        if session is not self._session:
            self._session = session
            session.join(self)
        answer = await session.call(
            method,
            url,
            read=read,
            body=body,
            headers=self._headers_for(policy),
            is_ours=self.internal,
            timeouts=Timeouts(read_s=self.timeout_s, total_s=self.timeout_s),
            retry=_retry_policy(self.tries, self.internal),
            send=self.send,
        )
        if cache is not None:
            own_keys = SecretValues([self.api_key, (policy and policy.api_key) or ""])
            # Store the answer instead of the reply, because the reply may be a stream of events, which is not JSON.
            text = answer if isinstance(answer, bytes) else dump_json(answer)
            await cache.write(key, own_keys.mask_bytes(text))
        return answer


def _with_model(asked: Mapping[str, object], policy: Policy | None) -> Mapping[str, object]:
    return asked if policy is None or policy.model is None else {**asked, "model": policy.model}


def _masked(read: Callable[[bytes], AnswerT | None], key: str | None) -> Callable[[bytes], AnswerT | None]:
    """Return a version of `read` that first masks `key`, an API key from a row, which other masking does not know."""
    secrets = SecretValues([key or ""])
    return lambda text: read(secrets.mask_bytes(text))


@lru_cache
def _retry_policy(tries: int, is_ours: bool) -> RetryPolicy:
    return RetryPolicy(tries=tries, statuses=frozenset() if is_ours else RETRIED)
