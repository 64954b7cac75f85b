"""Base class of the plain agent. Server folders can subclass the plain agent and override `responses` or `run`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel

from nemo_gym.calls.hooks import hooks
from nemo_gym.context.rollout_id import ROLLOUT_PARAMETER
from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.responses import RESPONSES_PATH, ResponseCreateParams
from nemo_gym.schemas.rollout import BaseVerifyResponse
from nemo_gym.servers.conversation import Conversation, Cookies
from nemo_gym.servers.conversing import ConversingAgent, ConversingRunRequest
from nemo_gym.servers.tools.handlers import Method


class OverridableAgent(ConversingAgent):
    """Base class of the plain agent. Subclasses of the plain agent may override `responses` and `run`.

    An overridden `responses` runs the conversation of each rollout. An overridden `run` may change the row, pass it
    to `super().run` and read the graded row as an instance of `GRADED`.
    """

    GRADED: ClassVar[type[BaseVerifyResponse]]

    async def run(self, request: Request, body: ConversingRunRequest) -> Any:
        """Run one rollout from its row to its reward and return the verifier's answer."""
        if not _overrides(self, "run"):
            running = super().run(request, body)
            # Drop this reference to the parsed row to free it early, because thousands of rollouts may run at once.
            del body
            return await running
        answer = await super().run(_with_row(request, body), body)
        return self.GRADED.model_validate_json(bytes(answer.body))

    async def converse(
        self, request: Request, body: ConversingRunRequest, row: JsonObject, session: Cookies
    ) -> Conversation:
        if not _overrides(self, "responses"):
            del body
            return await self.held(row["responses_create_params"], session)
        # Call `responses` with the arguments that its route would pass, but without an HTTP request.
        asked = _request_of_its_route(self, _with_cookies(request, session))
        response, cookies = await _answer_of(self.responses, body.responses_create_params, asked)
        return Conversation(response=response, session=session | cookies)

    async def held(
        self, params: Mapping[str, object], session: Cookies, model_path: str | None = None
    ) -> Conversation:
        """Run a whole conversation: model and tools take turns until the model answers."""
        conversation = await self.begin(params, session, model_path)
        await self.answer(conversation)
        return conversation


def _overrides(agent: OverridableAgent, method: str) -> bool:
    """Return whether an agent overrides a method of the plain agent, the class directly below `OverridableAgent`."""
    classes = type(agent).__mro__
    plain = classes[classes.index(OverridableAgent) - 1]
    return getattr(type(agent), method) is not getattr(plain, method)


def _request_of_its_route(agent: OverridableAgent, request: Request) -> Request:
    """Return a copy of the request for the agent's own `/v1/responses`, with the rollout id if calls are captured."""
    path, rollout_id = agent.url_path_for_run(RESPONSES_PATH, None), agent.rollout_id_from_run(None)
    named = {} if rollout_id is None else {ROLLOUT_PARAMETER: rollout_id}
    return Request({**request.scope, "path": path, "path_params": named})


async def _answer_of(responses: Method, params: ResponseCreateParams, request: Request) -> tuple[JsonObject, Cookies]:
    """Call `responses` with the parameters that it declares. Return its JSON reply and the cookies that it sets."""
    response = Response()
    given = {Request: request, Response: response}
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
    scope = hooks().scope(request)
    # Keep the host header, because without it the URL of a call over a unix socket is invalid.
    host = [header for header in scope["headers"] if header[0] == b"host"]
    return Request({**scope, "headers": [*host, (b"cookie", "; ".join(map("=".join, cookies.items())).encode())]})


def _cookies_in(response: Response) -> Cookies:
    jar: SimpleCookie = SimpleCookie("; ".join(each.split(";")[0] for each in response.headers.getlist("set-cookie")))
    return {name: morsel.coded_value for name, morsel in jar.items()}
