"""What a server answers when a handler fails: a problem body that keeps the cause, and the traceback in its log."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.errors import InvalidTask, RolloutError, ServerCallError
from nemo_gym.http.problems import MEDIA_TYPE, Problem, failure_of_call, problem_of_body, readable
from nemo_gym.servers.sessions import SET_COOKIE_SCOPE_KEY

logger = logging.getLogger(__name__)

ROLLOUT_ID_SCOPE_KEY = "nemo_gym_rollout_id"
"""Where an inner layer leaves the rollout's id for this one, which stands outside of its context."""


class FaultMiddleware:
    """The outermost layer: no handler's failure leaves a caller without an answer, or without the cause."""

    def __init__(self, app: ASGIApp, *, server: str, otherwise: type[RolloutError]) -> None:
        self.app = app
        self.server = server
        self.otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except Exception as error:
            if has_started:
                raise
            problem = Problem.of_error(self._failure(error, scope))
            headers = [(b"content-type", MEDIA_TYPE.encode())]
            if SET_COOKIE_SCOPE_KEY in scope:
                headers.append((b"set-cookie", scope[SET_COOKIE_SCOPE_KEY]().encode("latin-1")))
            await send({"type": "http.response.start", "status": problem.status, "headers": headers})
            await send({"type": "http.response.body", "body": problem.model_dump_json().encode()})

    def _failure(self, error: Exception, scope: Scope) -> RolloutError:
        path, rollout_id = scope["path"], scope.get(ROLLOUT_ID_SCOPE_KEY)
        if isinstance(error, RolloutError):
            if error.server is None:
                error.server = self.server
                if isinstance(error, InvalidTask):
                    error.tier = self.otherwise.default_tier
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            return error
        if isinstance(error, ServerCallError):
            told = problem_of_body(getattr(error, "response_content", b""))
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, error)
            if told:
                return told.to_error()
            return failure_of_call(error, server=self.server, otherwise=self.otherwise, during=self.server)
        logger.exception("%s failed (rollout %s)", path, rollout_id, exc_info=error)
        raised = readable(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        return self.otherwise(f"{self.server}: {path} raised {raised}; its log has the traceback", server=self.server)
