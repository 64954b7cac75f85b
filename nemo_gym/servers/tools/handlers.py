"""FastAPI endpoints made from an author's methods, with state and request filled in."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args, get_origin

from fastapi import Body
from pydantic import BaseModel
from starlette.requests import Request

from nemo_gym.errors import SignatureError
from nemo_gym.servers.sessions import SessionState, SessionStore
from nemo_gym.web.session_cookies import SESSION_ID_KEY
from nemo_gym.web.threads import blocking_pool

Method = Callable[..., Any]
Endpoint = Callable[..., Awaitable[Any]]

REQUEST_PARAMETER = "nemo_gym_request"


@dataclass(frozen=True)
class Handler:
    """An author's method, and which of its parameters are filled in."""

    method: Method
    signature: inspect.Signature
    states: dict[str, type[SessionState]]
    """Parameters that receive this rollout's state, with the class of each."""
    request_parameter: str | None
    """The parameter that receives the request, if any."""
    is_coroutine: bool
    """Whether the method is awaited. A plain function runs in a thread."""

    @classmethod
    def of(cls, method: Method) -> Handler:
        """Read a bound method's signature. Annotations written as strings are resolved in its module.

        Raises `SignatureError` for a `SessionState` that cannot be created on first use.
        """
        signature = inspect.signature(method, eval_str=True)
        kinds = {name: _bare(parameter.annotation) for name, parameter in signature.parameters.items()}
        states = {name: kind for name, kind in kinds.items() if _is_class_of(kind, SessionState)}
        for name, kind in kinds.items():
            _check_state(kind, f"{getattr(method, '__qualname__', method)}: the parameter '{name}'")
        return cls(
            method=method,
            signature=signature,
            states=states,
            request_parameter=next((name for name, kind in kinds.items() if _is_class_of(kind, Request)), None),
            is_coroutine=inspect.iscoroutinefunction(method),
        )

    @property
    def open_parameters(self) -> list[inspect.Parameter]:
        """The parameters that a caller fills: neither state nor request."""
        return [
            parameter
            for name, parameter in self.signature.parameters.items()
            if name not in self.states and name != self.request_parameter
        ]

    async def call(self, request: Request, store: SessionStore, arguments: dict[str, Any]) -> Any:
        """Call the method with these arguments. A plain `def` runs in a thread."""
        given = dict(arguments)
        if self.request_parameter is not None:
            given[self.request_parameter] = request
        if not self.states:
            return await self._result(given)
        session_id = request.session[SESSION_ID_KEY]
        for name, kind in self.states.items():
            given[name] = store.get(session_id, kind)
        with store.in_use(session_id):
            return await self._result(given)

    async def _result(self, given: dict[str, Any]) -> Any:
        if self.is_coroutine:
            return await self.method(**given)
        result = await blocking_pool().run(self.method, **given)
        return await result if inspect.isawaitable(result) else result


def endpoint_of(
    handler: Handler,
    store: SessionStore,
    *,
    finish: Callable[[Request, Any], Awaitable[Any]] | None = None,
    returns: Any = None,
) -> Endpoint:
    """Return a FastAPI endpoint for a method. FastAPI checks the body; state and request are filled in.

    `finish(request, result)` may convert the result into the response. `returns` replaces the return annotation,
    which FastAPI uses as the response model.
    """
    request_name = handler.request_parameter or REQUEST_PARAMETER

    async def endpoint(**arguments: Any) -> Any:
        request = arguments.pop(request_name)
        result = await handler.call(request, store, arguments)
        return result if finish is None else await finish(request, result)

    parameters = [
        inspect.Parameter(request_name, inspect.Parameter.KEYWORD_ONLY, annotation=Request),
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in handler.open_parameters),
    ]
    annotation = handler.signature.return_annotation if returns is None else returns
    endpoint.__signature__ = inspect.Signature(parameters, return_annotation=annotation)  # type: ignore[attr-defined]
    endpoint.__name__ = getattr(handler.method, "__name__", "endpoint")
    endpoint.__doc__ = handler.method.__doc__
    return endpoint


def with_optional_body(handler: Handler) -> Handler:
    """Return the same method with an optional body, provided that every field of the body has a default."""
    parameters = [
        parameter.replace(default=Body(default_factory=parameter.annotation))
        if parameter.default is parameter.empty
        and _is_class_of(parameter.annotation, BaseModel)
        and not any(field.is_required() for field in parameter.annotation.model_fields.values())
        and parameter.name not in handler.states
        else parameter
        for parameter in handler.signature.parameters.values()
    ]
    # Keyword-only, so that a parameter with a default may precede one without.
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    return replace(handler, signature=handler.signature.replace(parameters=by_name))


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _check_state(kind: Any, where: str) -> None:
    if _is_class_of(kind, SessionState):
        required = [name for name, field in kind.model_fields.items() if field.is_required()]
        if required:
            raise SignatureError(
                f"{where} is the SessionState {kind.__name__}, which is created on first use. Give each of its fields "
                f"a default ({', '.join(required)})"
            )
    elif any(_is_class_of(_bare(each), SessionState) for each in get_args(kind)):
        raise SignatureError(f"{where} is {kind}. Annotate it with the SessionState alone: it is always present")


def _is_class_of(annotation: Any, base: type) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, base)
