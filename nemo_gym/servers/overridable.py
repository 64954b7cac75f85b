"""The base of the plain agent. Published folders subclass that agent and override its `responses` or its `run`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel

from nemo_gym.schemas.responses import ResponseCreateParams
from nemo_gym.schemas.rollout import BaseVerifyResponse
from nemo_gym.servers.conversation import Conversation, Cookies
from nemo_gym.servers.conversing import ConversingAgent, ConversingRunRequest


class OverridableAgent(ConversingAgent):
    """A conversing agent whose subclass writes `responses`; further subclasses may override it, and `run`.

    An overridden `responses` holds the conversation of each rollout. An overridden `run` may change the row, pass it
    to `super().run` and read the graded row, a `GRADED`.
    """

    GRADED: ClassVar[type[BaseVerifyResponse]]

    async def run(self, request: Request, body: ConversingRunRequest) -> Any:
        """Run one rollout from its row to its reward and return the verifier's answer."""
        if not _overrides(self, "run"):
            running = super().run(request, body)
            # Thousands of rollouts run at once, and this one needs its row only.
            del body
            return await running
        answer = await super().run(_with_row(request, body), body)
        return self.GRADED.model_validate_json(bytes(answer.body))

    async def converse(
        self, request: Request, body: ConversingRunRequest, row: dict[str, Any], session: Cookies
    ) -> Conversation:
        """Hold the conversation of a row."""
        if not _overrides(self, "responses"):
            del body
            return await self.held(row["responses_create_params"], session)
        # Called like its route, but without the detour over HTTP.
        response, cookies = await _answer_of(self.responses, body.responses_create_params, request, session)
        return Conversation(response=response, session=session | cookies)

    async def held(self, params: dict[str, Any], session: Cookies) -> Conversation:
        """Return a whole conversation: model and tools take turns until the model answers."""
        conversation = await self.begin(params, session)
        await self.answer(conversation)
        return conversation


def _overrides(agent: OverridableAgent, method: str) -> bool:
    """Return whether a subclass of the agent that derives from `OverridableAgent` itself overrides a method."""
    classes = type(agent).__mro__
    plain = classes[classes.index(OverridableAgent) - 1]
    return getattr(type(agent), method) is not getattr(plain, method)


async def _answer_of(
    responses: Callable[..., Any], params: ResponseCreateParams, request: Request, session: Cookies
) -> tuple[dict[str, Any], Cookies]:
    """Call a `responses` that may take a request and a response too; return its answer as JSON and its cookies."""
    response = Response()
    given = {Request: _with_cookies(request, session), Response: response}
    parameters = inspect.signature(responses, eval_str=True).parameters
    answer = await responses(**{name: given.get(each.annotation, params) for name, each in parameters.items()})
    if isinstance(answer, Response):
        return json.loads(bytes(answer.body)), _cookies_in(answer)
    return jsonable_encoder(answer), _cookies_in(response)


def _with_row(request: Request, row: BaseModel) -> Request:
    changed = _with_cookies(request, dict(request.cookies))
    changed._json = row.model_dump(mode="json", exclude_unset=True)
    return changed


def _with_cookies(request: Request, cookies: Cookies) -> Request:
    # Tests of published folders pass a mock as the request.
    scope = request.scope if isinstance(request, Request) else {"type": "http"}
    return Request({**scope, "headers": [(b"cookie", "; ".join(map("=".join, cookies.items())).encode())]})


def _cookies_in(response: Response) -> Cookies:
    jar: SimpleCookie = SimpleCookie(
        "; ".join(value.split(";")[0] for value in response.headers.getlist("set-cookie"))
    )
    return {name: morsel.coded_value for name, morsel in jar.items()}
