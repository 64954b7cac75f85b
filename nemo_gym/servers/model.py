"""The base class of model servers: stateless inference in the shape of the Responses API."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import Body, FastAPI

from nemo_gym.config.observability import ModelCallCaptureConfig
from nemo_gym.config.settings import BaseResponsesAPIModelConfig, ModelServerRef
from nemo_gym.errors import ModelFailed
from nemo_gym.servers.base import SimpleServer
from nemo_gym.servers.model_routes import add_model_routes
from nemo_gym.servers.name_clashes import hook_of

__all__ = ["BaseResponsesAPIModel", "Body", "SimpleResponsesAPIModel"]


class BaseResponsesAPIModel(SimpleServer):
    """A model server's settings."""

    config: BaseResponsesAPIModelConfig

    FAILURE = ModelFailed


class SimpleResponsesAPIModel(BaseResponsesAPIModel):
    """Subclass it and write `responses` and `chat_completions`; both may take the request before the body."""

    passes_on: ClassVar[bool] = False
    """Whether `pass_on` answers as `responses` does. A class that writes its own `responses` says so anew."""

    @abstractmethod
    async def responses(self, *arguments: Any, **named: Any) -> Any:
        """Answer a `ResponseCreateParams` with a `Response`: `(body)` or `(request, body)`."""

    @abstractmethod
    async def chat_completions(self, *arguments: Any, **named: Any) -> Any:
        """Answer a `ChatCompletionCreateParams` with a `ChatCompletion`: `(body)` or `(request, body)`."""

    async def pass_on(self, params: Mapping[str, Any], items: memoryview) -> bytes:
        """The JSON of the response to a request of one of our own agents, which reads the answer itself.

        `params` are the checked ones that were set, not to be changed; `items` is the JSON of the input, a
        view of what came, since it may be long.
        """
        raise NotImplementedError

    def setup_webserver(self) -> FastAPI:
        """The app with the routes of a model server."""
        app: FastAPI = hook_of(self, "new_app")()
        add_model_routes(
            app,
            responses=self.responses,
            chat_completions=self.chat_completions,
            pass_on=self.pass_on if _says(type(self), "passes_on", of="responses") else None,
        )
        self._record_calls(app)
        return app

    def _record_calls(self, app: FastAPI) -> None:
        # The stand-ins for a client in published tests have no configuration.
        folder = ModelCallCaptureConfig.of(getattr(self.server_client, "global_config_dict", None)).store_dir
        if folder is None:
            return
        # Imported here: a server that records nothing does not pay for it.
        from nemo_gym.capture.middleware import CaptureMiddleware
        from nemo_gym.capture.store import CaptureStore

        reference = ModelServerRef(type="responses_api_models", name=self.config.name)
        app.add_middleware(CaptureMiddleware, store=CaptureStore(folder).opened(), model_ref=reference)


def _says(cls: type, mark: str, *, of: str) -> bool:
    """What the class that wrote the method says of it; what a base class says is of its own method."""
    writer = next(each for each in cls.__mro__ if of in vars(each))
    return bool(vars(writer).get(mark, False))
