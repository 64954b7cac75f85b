"""Base class of model servers: stateless inference with the Responses API."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import Body, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.settings import BaseResponsesAPIModelConfig, ModelServerRef
from nemo_gym.errors import ConfigError, ModelFailed
from nemo_gym.http.reply_cache import ReplyCache, current_cache
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.model_routes import add_model_routes
from nemo_gym.servers.policies import accept_policies

__all__ = ["BaseResponsesAPIModel", "Body", "SimpleResponsesAPIModel"]


class BaseResponsesAPIModel(SimpleServer):
    config: BaseResponsesAPIModelConfig

    FAILURE = ModelFailed


class SimpleResponsesAPIModel(BaseResponsesAPIModel):
    """Base class of model servers. Implement `responses` and `chat_completions`."""

    passes_on: ClassVar[bool] = False
    """Whether `pass_on` is equivalent to `responses`. A class that overrides `responses` must set this flag again."""
    follows_policies: ClassVar[bool] = False
    """Whether a row's policy replaces this server's endpoint. If so, set `follows_policy` of the endpoint's client."""

    @abstractmethod
    async def responses(self, *arguments: Any, **named: Any) -> object:
        """Return the `Response` to a `ResponseCreateParams`. Declare the parameters `(body)` or `(request, body)`."""

    @abstractmethod
    async def chat_completions(self, *arguments: Any, **named: Any) -> object:
        """Return the `ChatCompletion` to a `ChatCompletionCreateParams`.

        Declare the parameters `(body)` or `(request, body)`.
        """

    async def pass_on(self, params: Mapping[str, object], items: memoryview) -> bytes:
        """Return the JSON of a response without parsing the input. Called only for requests of nemo_gym's agents.

        `params` are the validated parameters that the caller set; do not change them. `items` is a view of the
        input's JSON, which may be long.
        """
        raise NotImplementedError

    def setup_webserver(self) -> FastAPI:
        app = hooks().server(self).new_app()
        add_model_routes(
            app,
            responses=self.responses,
            chat_completions=self.chat_completions,
            pass_on=self.pass_on if _flag_of_definer(type(self), "passes_on", method="responses") else None,
        )
        self._record_calls(app)
        self._cache_replies(app)
        accept_policies(self, app, follows=self.follows_policies)
        return app

    def _record_calls(self, app: FastAPI) -> None:
        settings = hooks().address_book(self.server_client).settings
        folder, tokens = settings.capture_dir, settings.token_id_capture
        if folder is None and not tokens.enabled:
            return
        # Imported here, because most servers do not record calls.
        from nemo_gym.capture.middleware import CaptureMiddleware
        from nemo_gym.capture.store import CaptureStore
        from nemo_gym.capture.tokens.recording import open_store

        app.add_middleware(
            CaptureMiddleware,
            store=None if folder is None else CaptureStore(folder).opened(),
            model_ref=ModelServerRef(type="responses_api_models", name=self.config.name),
            sink=open_store(tokens) if tokens.enabled else None,
        )

    def _cache_replies(self, app: FastAPI) -> None:
        book = hooks().address_book(self.server_client)
        if book.settings.model_cache is None:
            return
        if getattr(self.config, "return_token_id_information", False):
            raise ConfigError(
                f"{self.config.name}: return_token_id_information cannot be used with model_cache: answers of "
                "an earlier policy must not be trained on. Remove one of the two keys."
            )
        app.add_middleware(CachedReplies, cache=ReplyCache(book.settings.model_cache, book.run_id).opened())


class CachedReplies:
    """Middleware that sets the cache for the model calls that a request causes. See `ReplyCache`."""

    def __init__(self, app: ASGIApp, cache: ReplyCache) -> None:
        self.app = app
        self.cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = current_cache.set(self.cache)
        try:
            await self.app(scope, receive, send)
        finally:
            current_cache.reset(token)


def _flag_of_definer(cls: type, flag: str, *, method: str) -> bool:
    """Return the `flag` of the class that defines `method`. A subclass's flag does not affect inherited methods."""
    definer = next(each for each in cls.__mro__ if method in vars(each))
    return bool(vars(definer).get(flag, False))
