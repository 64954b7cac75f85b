"""The response when a request handler fails: a problem body with the cause. The traceback goes to the log."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from nemo_gym.calls.problems import failure_of_call, problem_of_body
from nemo_gym.errors import (
    EndpointError,
    InvalidTask,
    Overloaded,
    RolloutCancelled,
    RolloutError,
    ServerCallError,
    ServerLost,
    fault_in,
)
from nemo_gym.http.reply import readable

logger = logging.getLogger(__name__)

OF_ANY_TIER = (InvalidTask, Overloaded, ServerLost)
"""Failures that any server may raise. If one does not name its server, a default tier becomes the server's tier."""
ROLLOUT_ID_SCOPE_KEY = "nemo_gym_rollout_id"
"""Scope key under which an inner layer passes the rollout's id to an outer layer, which has no rollout context."""
CONVERSATION_SCOPE_KEY = "nemo_gym_conversation"
"""Scope key of a failed rollout's conversation. The response with the failure includes this conversation."""


class Failures:
    """A converter of errors in a server's handlers into failures of rollouts."""

    def __init__(
        self, server: str, otherwise: type[RolloutError], *, folder: Path | None = None, log_file: str = ""
    ) -> None:
        """`otherwise` is the failure for errors that are not a `RolloutError`; `folder` has the server's own code."""
        self.server = server
        self.otherwise = otherwise
        self.folder = folder
        self.log_file = log_file

    def failure(self, error: Exception, scope: Scope) -> RolloutError:
        """Log an error of a request's handler and return the failure that it causes for the rollout."""
        path, rollout_id = scope["path"], scope.get(ROLLOUT_ID_SCOPE_KEY)
        if isinstance(error, RolloutError):
            if error.server is None:
                error.server = self.server
                error.log_file = self.log_file or None
                if error.tier == error.default_tier and isinstance(error, OF_ANY_TIER):
                    error.tier = self.otherwise.default_tier
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, _in_unicode(error))
            return error
        if isinstance(error, ClientDisconnect):
            logger.debug(
                "%s ended (rollout %s): its caller hung up before the end of the request's body", path, rollout_id
            )
            return RolloutCancelled(
                f"the caller of {path} hung up before the end of the request's body", server=self.server
            )
        content = _response_in(error)
        problem = problem_of_body(content)
        if problem is not None:
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, _in_unicode(error))
            return problem.to_error()
        if isinstance(error, ServerCallError):
            logger.warning("%s failed (rollout %s): %s", path, rollout_id, _in_unicode(error))
            return failure_of_call(error, server=self.server, otherwise=self.otherwise, during=self.server)
        logger.exception("%s failed (rollout %s)", path, rollout_id, exc_info=error)
        fault = f"{type(error).__name__}: {error}" if self.folder is None else fault_in(self.folder, error)
        raised = readable(fault.encode("utf-8", "replace"))
        if content:
            raised = f"{raised} ({readable(content)})"
        message = f"{self.server}: {path} raised {raised}; its log has the traceback"
        failure = self.otherwise(message, server=self.server)
        failure.log_file = self.log_file or None
        return failure


def _response_in(error: Exception) -> bytes:
    """Return the response of another server, if nemo_gym's client or `raise_for_status` attached it to the error."""
    content = getattr(error, "response_content", b"")
    # Ignore an external endpoint's response, because it must not be taken for a failure of one of our servers.
    return content if isinstance(content, bytes) and not isinstance(error, EndpointError) else b""


def _in_unicode(error: Exception) -> str:
    """Return an error's message for the log, because a lone surrogate in it cannot be written."""
    return str(error).encode("utf-8", "replace").decode()
