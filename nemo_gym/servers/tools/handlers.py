"""FastAPI endpoints for an author's methods. The methods may receive the rollout's state and the request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeGuard, TypeVar, get_args, get_origin

from fastapi import Body, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request

from nemo_gym.errors import SignatureError
from nemo_gym.servers.sessions import SessionState, SessionStore, session_id_of
from nemo_gym.web.threads import blocking_pool

KindT = TypeVar("KindT")

Method = Callable[..., Any]
Endpoint = Callable[..., Awaitable[object]]
Respond = Callable[[Request, dict[str, object]], Awaitable[object]]
"""A function that handles a request with the parsed arguments of an author's method."""

OF_EVERY_ROLLOUT = {
    "/seed_session": "BaseSeedSessionRequest",
    "/verify": "BaseVerifyRequest",
    "/reset": "BaseResetRequest",
    "/step": "BaseStepRequest",
    "/run": "BaseRunRequest",
}
"""The paths that every rollout calls with its row as the body and without a query, and the base class of each body."""


@dataclass(frozen=True)
class Handler:
    """An author's method, and its parameters that the server fills in: the rollout's state and the request."""

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
        """Read a bound method's signature. Annotations written as strings are resolved in the method's module.

        Raise `SignatureError` if a `SessionState` cannot be created on first use.
        """
        signature = inspect.signature(method, eval_str=True)
        kinds = {name: bare(parameter.annotation) for name, parameter in signature.parameters.items()}
        with placed_at(method):
            for name, kind in kinds.items():
                _check_state(kind, f"{getattr(method, '__qualname__', method)}: the parameter '{name}'")
        return cls(
            method=method,
            signature=signature,
            states={name: kind for name, kind in kinds.items() if is_class_of(kind, SessionState)},
            request_parameter=next((name for name, kind in kinds.items() if is_class_of(kind, Request)), None),
            is_coroutine=inspect.iscoroutinefunction(method),
        )

    @property
    def open_parameters(self) -> list[inspect.Parameter]:
        """The parameters that the caller fills in, without those for the state and the request."""
        filled_in = {*self.states, self.request_parameter}
        return [parameter for name, parameter in self.signature.parameters.items() if name not in filled_in]

    def call(self, request: Request, store: SessionStore, arguments: dict[str, object]) -> Awaitable[object]:
        """Call the method with these arguments. A plain `def` runs in a thread."""
        given = dict(arguments)
        if self.request_parameter is not None:
            given[self.request_parameter] = request
        return self._call_with_states(session_id_of(request), store, given) if self.states else self._result(given)

    async def _call_with_states(self, session_id: str, store: SessionStore, given: dict[str, object]) -> object:
        for name, kind in self.states.items():
            given[name] = store.get(session_id, kind)
        with store.in_use(session_id):
            return await self._result(given)

    def _result(self, given: dict[str, object]) -> Awaitable[object]:
        result: Awaitable[object] = self.method(**given) if self.is_coroutine else self._in_thread(given)
        return result

    async def _in_thread(self, given: dict[str, object]) -> object:
        result = await blocking_pool().run(self.method, **given)
        return await result if inspect.isawaitable(result) else result


def endpoint_of(
    handler: Handler, respond: Respond, *, returns: object = None, has_optional_body: bool = False
) -> Endpoint:
    """Return a FastAPI endpoint for a method. FastAPI checks the arguments, and `respond` calls the method with them.

    `returns` replaces the return annotation, which FastAPI uses as the response model. With `has_optional_body`, a
    body may be missing if each of its fields has a default.
    """
    request_name = handler.request_parameter or "nemo_gym_request"

    async def endpoint(**arguments: Any) -> object:
        return await respond(arguments.pop(request_name), arguments)

    return with_signature(
        endpoint,
        [
            inspect.Parameter(request_name, inspect.Parameter.KEYWORD_ONLY, annotation=Request),
            *(_optional(each) if has_optional_body else each for each in handler.open_parameters),
        ],
        returns=handler.signature.return_annotation if returns is None else returns,
        name=getattr(handler.method, "__name__", "endpoint"),
        doc=handler.method.__doc__,
    )


def with_signature(
    endpoint: Endpoint, parameters: Iterable[inspect.Parameter], *, returns: object, name: str, doc: str | None
) -> Endpoint:
    """Return an endpoint with the signature, name and docstring that FastAPI reads."""
    # Make all parameters keyword-only, so that one with a default may precede one without a default.
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    endpoint.__signature__ = inspect.Signature(by_name, return_annotation=returns)  # type: ignore[attr-defined]
    endpoint.__name__, endpoint.__doc__ = name, doc
    return endpoint


def check_bodies(server: object, app: FastAPI) -> None:
    """Raise `SignatureError` if a method that every rollout calls would not receive the row.

    FastAPI reads a parameter from the query instead of the body if the parameter has no annotation, or a simple type
    such as `str`. Then every call would fail.
    """
    checked: set[str] = set()
    for route in app.routes:
        path = getattr(route, "path", "")
        if path not in OF_EVERY_ROLLOUT or path in checked or not isinstance(route, APIRoute):
            continue
        # Check only the first route for a path, because later ones are never called.
        checked.add(path)
        wrong = [field.name for field in route.dependant.query_params if field.field_info.is_required()]
        if wrong:
            with placed_at(getattr(server, route.name, route.endpoint)):
                raise SignatureError(
                    f"{type(server).__name__}.{route.name}: the parameter '{wrong[0]}' would not receive the row. "
                    f"Annotate it with {OF_EVERY_ROLLOUT[path]}, or with your own subclass that adds the row's "
                    "fields"
                )


@contextmanager
def placed_at(method: object) -> Iterator[None]:
    """Add the method's file and line to a `SignatureError` that is raised in this block."""
    try:
        yield
    except SignatureError as error:
        error.place = error.place or place_of(method)
        raise


def place_of(method: object) -> str | None:
    """Return the file and line of a method, or None if it is not a Python function."""
    code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else None


def bare(annotation: Any) -> Any:
    """Return the type inside `Annotated[…]`. Return any other annotation unchanged."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def is_class_of(annotation: object, base: type[KindT]) -> TypeGuard[type[KindT]]:
    """Return whether an annotation is a class derived from `base`."""
    return inspect.isclass(annotation) and issubclass(annotation, base)


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    """Give a parameter a default if it is a body whose fields all have defaults. Return others unchanged."""
    kind = parameter.annotation
    if parameter.default is not parameter.empty or not is_class_of(kind, BaseModel):
        return parameter
    if any(field.is_required() for field in kind.model_fields.values()):
        return parameter
    return parameter.replace(default=Body(default_factory=kind))


def _check_state(kind: object, where: str) -> None:
    if is_class_of(kind, SessionState):
        required = [name for name, field in kind.model_fields.items() if field.is_required()]
        if required:
            raise SignatureError(
                f"{where} is the SessionState {kind.__name__}, which is created on first use. Give each of its fields "
                f"a default ({', '.join(required)})"
            )
    elif any(is_class_of(bare(each), SessionState) for each in get_args(kind)):
        raise SignatureError(f"{where} is {kind}. Annotate it with the SessionState alone: a state is always present")
