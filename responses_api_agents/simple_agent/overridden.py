"""What a subclass of the plain agent writes anew is called as its route would be, without the detour over HTTP."""

import inspect
import json
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any

from fastapi import Request, Response
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel

from nemo_gym import NeMoGymResponseCreateParamsNonStreaming


async def answer_of(
    responses: Callable[..., Any],
    params: NeMoGymResponseCreateParamsNonStreaming,
    request: Request,
    session: dict[str, str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """What a `responses` answers, as JSON, and the cookies it sets; it may take a request and a response too."""
    told = Response()
    given = {Request: _with(request, cookies=session), Response: told}
    parameters = inspect.signature(responses, eval_str=True).parameters
    answered = await responses(**{name: given.get(each.annotation, params) for name, each in parameters.items()})
    if isinstance(answered, Response):
        return json.loads(answered.body), _cookies_in(answered)
    return jsonable_encoder(answered), _cookies_in(told)


def asking_for(row: BaseModel, request: Request) -> Request:
    """The same request with this row in it."""
    asking = _with(request, cookies=dict(request.cookies))
    asking._json = row.model_dump(mode="json", exclude_unset=True)
    return asking


def _with(request: Request, *, cookies: dict[str, str]) -> Request:
    # Tests of published folders have a mock for a request.
    scope = request.scope if isinstance(request, Request) else {"type": "http"}
    return Request({**scope, "headers": [(b"cookie", "; ".join(map("=".join, cookies.items())).encode())]})


def _cookies_in(response: Response) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie(
        "; ".join(value.split(";")[0] for value in response.headers.getlist("set-cookie"))
    )
    return {name: morsel.coded_value for name, morsel in jar.items()}
