"""Every error we raise, sorted by who should hear of it.

NemoGymError
├─ UserError              the user: one paragraph, no traceback, exit code 1
│  ├─ ConfigError         something in the YAML or on the command line
│  │  ├─ ConfigPathNotFoundError, MalformedConfigPathsError, ConfigSyntaxError
│  │  ├─ ConfigMissingValuesError, ConfigInterpolationError, InheritPathNotFoundError
│  │  ├─ NoServerInstancesError, AlmostServerError, UnknownImplementationError
│  │  ├─ DuplicateServerError, ServerRefNotFoundError, PortTakenError, OverrideError
│  │  └─ UsageError       a parameter of the command; exit code 2
│  ├─ LaunchError         a server that did not come up, or went away
│  └─ DataError           a row, a file, an existing result
├─ RolloutError           the record: a failed rollout, kept apart, without a reward
│  ├─ ModelFailed, AgentFailed, EnvironmentFailed, JudgeFailed
│  └─ RolloutTimedOut, Overloaded, RolloutCancelled, ServerLost, InvalidTask
├─ ToolError              the model: told as the tool's answer
└─ ServerCallError        a call between servers that brought no usable answer
   └─ EndpointError        the same of a model endpoint outside

Anything else is a bug of ours, and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self


class NemoGymError(Exception):
    """The root of everything below."""


class UserError(NemoGymError):
    """Something its user can mend: the message says where, what and what now."""


class ConfigError(UserError):
    """A mistake in a configuration file or on the command line."""


class UsageError(ConfigError, ValueError):
    """A parameter of the command itself is missing or wrong; its exit code is 2, as of any wrong flag."""


class ConfigPathNotFoundError(ConfigError, FileNotFoundError):
    """A configuration file is in none of the folders that are searched."""


class MalformedConfigPathsError(ConfigError, ValueError):
    """`config_paths` is not a list of paths."""


class ConfigSyntaxError(ConfigError, ValueError):
    """A file is not YAML, or not a mapping."""


class ConfigMissingValuesError(ConfigError, ValueError):
    """Required values (`???`) are unset; all of them are named."""


class ConfigInterpolationError(ConfigError, ValueError):
    """A `${…}` points at nothing."""


class InheritPathNotFoundError(ConfigError, ValueError):
    """`_inherit_from` or `_copy` names a path that no file defines."""


class NoServerInstancesError(ConfigError, ValueError):
    """The configuration defines no server."""


class AlmostServerError(ConfigError, ValueError):
    """A block looks like a server and is not a valid one."""


class UnknownImplementationError(ConfigError, ValueError):
    """No folder holds the implementation that a block names."""


class DuplicateServerError(ConfigError, ValueError):
    """One name, two blocks."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A reference names a server that no file defines."""


class PortTakenError(ConfigError, ValueError):
    """A fixed port is in use."""


class OverrideError(ConfigError, ValueError):
    """A command-line override that cannot be read or applied."""


class LaunchError(UserError):
    """A server did not come up, or went away while it was needed."""


class SignatureError(LaunchError, TypeError):
    """A method that its server cannot offer as it is written: as a tool, or with a state."""


class HeadServerNotFoundError(LaunchError, ValueError):
    """No head server answers where one was looked for."""


class DataError(UserError, ValueError):
    """A row or a file that cannot be used as it is."""


class RolloutError(NemoGymError):
    """One rollout failed. It is recorded with its cause and never earns a reward.

    `failure_class` is what the record carries as `_ng_failure_class`, `tier` where it happened (`model`, `agent`,
    `environment`, `judge` or `collector`), and `server` the instance. `may_retry` says whether the same rollout,
    begun anew, may well succeed: what failed was not the rollout itself.
    """

    failure_class: ClassVar[str] = "rollout_failed"
    status: ClassVar[int] = 500
    """The HTTP status with which servers tell of it."""
    may_retry: ClassVar[bool] = False
    default_tier: ClassVar[str] = "agent"

    def __init__(self, message: str, *, server: str | None = None, tier: str | None = None) -> None:
        super().__init__(message)
        self.server = server
        self.tier = tier or self.default_tier
        self.retry_after_s: float | None = None
        """How long whoever failed asks to be left alone, where it says so."""
        self.row: dict[str, Any] | None = None
        """The row that failed, if `run_examples` raises this."""


class ModelFailed(RolloutError):
    """A model server, or the endpoint behind it, gave no usable answer."""

    failure_class = "model_failed"
    status = 502
    default_tier = "model"


class AgentFailed(RolloutError):
    """The agent server could not carry the rollout through."""

    failure_class = "agent_failed"


class EnvironmentFailed(RolloutError):
    """A tool, `seed_session` or `verify` failed for a reason the model is not to blame for."""

    failure_class = "environment_failed"
    default_tier = "environment"


class JudgeFailed(RolloutError):
    """The judge gave no verdict."""

    failure_class = "judge_failed"
    status = 502
    default_tier = "judge"


class RolloutTimedOut(RolloutError):
    """The time for the rollout was over before it had ended."""

    failure_class = "timeout"
    status = 504
    default_tier = "collector"


class Overloaded(RolloutError):
    """A server, or a model endpoint, had no room for the call, however often it was asked."""

    failure_class = "overloaded"
    status = 503
    may_retry = True


class RolloutCancelled(RolloutError):
    """Whoever wanted the rollout has given it up."""

    failure_class = "cancelled"
    status = 499
    default_tier = "collector"


class ServerLost(RolloutError):
    """A server ended while the rollout needed it, or came back without the rollout's state."""

    failure_class = "lost"
    status = 503
    may_retry = True


class InvalidTask(RolloutError):
    """The row cannot be run: what is wrong with it would be wrong the next time, too."""

    failure_class = "invalid_task"
    status = 422
    default_tier = "collector"


FAILURES: Mapping[str, type[RolloutError]] = {
    failure.failure_class: failure
    for failure in (
        ModelFailed,
        AgentFailed,
        EnvironmentFailed,
        JudgeFailed,
        RolloutTimedOut,
        Overloaded,
        RolloutCancelled,
        ServerLost,
        InvalidTask,
    )
}
"""Every kind of failure, by its class in the records."""


class ToolError(NemoGymError):
    """Raised by a tool to tell the model what went wrong; the rollout goes on."""


class ServerCallError(NemoGymError):
    """A call to another server brought no usable answer.

    `was_sent` is False only where the request certainly never left, so trying again is safe.
    """

    aiohttps: str = "ClientError"
    """What aiohttp calls it: published folders catch that."""

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent

    def of_server(self, name: str) -> Self:
        """The same error, its message naming the server that was called."""
        self.args = (f"server '{name}': {self}",)
        return self


class EndpointError(ServerCallError):
    """A model endpoint brought no usable answer, however often it was asked.

    `status` is its HTTP status, None where no answer came; `body` is the beginning of what it said.
    """

    def __init__(self, message: str, *, status: int | None = None, body: str = "", was_sent: bool = True) -> None:
        super().__init__(message, was_sent=was_sent)
        self.status = status
        self.body = body
        self.response_content = body.encode()
        self.aiohttps = "ClientConnectionError" if status is None else "ClientResponseError"


def exit_code_of(action: Callable[..., Any], *arguments: Any, **named: Any) -> int:
    """Do what a small program is for, and return its exit code: what its user can mend is told, and makes it 1."""
    try:
        action(*arguments, **named)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
