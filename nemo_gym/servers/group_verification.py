"""Verification of all rollouts of a task together: `verify_group` in place of `verify`."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat, get_args

from pydantic import BaseModel, Field, create_model

from nemo_gym.calls.hooks import hooks
from nemo_gym.config.settings import LEAST_GROUP
from nemo_gym.errors import ConfigError, InvalidTask, JudgeFailed, NemoGymError, SignatureError, fault_in
from nemo_gym.schemas.rollout import FAILURE_MARKS, GROUP_PATH, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.schemas.row import UNGRADED, marks_of_failure
from nemo_gym.servers.base import SimpleServer, context_of, folder_of
from nemo_gym.servers.judging import failure_fields
from nemo_gym.servers.tools.handlers import Handler, bare, is_class_of, place_of, placed_at
from nemo_gym.text import counted, with_article
from nemo_gym.web.threads import blocking_pool

logger = logging.getLogger(__name__)

Result = BaseVerifyResponse | JudgeFailed | SupportsFloat


class VerifiesGroups:
    """Mixin for resources servers with `verify_group`, which verifies all rollouts of a task together."""

    async def verify_group(self, bodies: Sequence[Any]) -> Sequence[object]:
        """Return the rewards of several rollouts of one task, in order. Implement this method instead of `verify`.

        Each result is a number or a `BaseVerifyResponse`, as for `verify`, or a `JudgeFailed` for a rollout without a
        verdict. Raise `JudgeFailed` if no rollout has a verdict. Annotate `bodies` with `Sequence` or `list` of your
        request class. The server's block in the config needs `group_verification: {}`.
        """
        raise NotImplementedError

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        verify = getattr(cls, "verify", None)
        if verifies_groups(cls) and getattr(verify, "__isabstractmethod__", False):
            cls.verify = _only_in_a_group  # type: ignore[attr-defined]


async def _only_in_a_group(self: object, body: Any) -> object:
    """Raise `InvalidTask`, because the rollouts of this server are verified in groups."""
    raise InvalidTask(f"{type(self).__name__} verifies rollouts in groups. Call verify_group with a whole group.")


def verifies_groups(cls: type) -> bool:
    return issubclass(cls, VerifiesGroups) and cls.verify_group is not VerifiesGroups.verify_group


def is_for_groups(server: SimpleServer) -> bool:
    """Return whether a server verifies groups. Raise `ConfigError` if its settings do not match its class."""
    settings = hooks().setting(server.config, "group_verification")
    name, cls = context_of(server).telemetry.server, type(server).__name__
    if not verifies_groups(type(server)):
        if settings is not None:
            raise ConfigError(
                f"{name}: group_verification is set, but {cls} does not override verify_group. Remove "
                "group_verification."
            )
        return False
    if settings is None:
        raise ConfigError(
            f"{name}: {cls} overrides verify_group, so its block needs the key group_verification, such as "
            "group_verification: {}"
        )
    return True


class GroupVerifier:
    """The verifier of one server's groups. It calls the server's `verify_group`."""

    def __init__(self, server: VerifiesGroups, name: str) -> None:
        self._name = name
        self._server = server
        self._handler = Handler.of(server.verify_group)
        self._parameter, self.body = _body_of(self._handler)
        bodies: Any = (list[self.body], Field(min_length=LEAST_GROUP))  # type: ignore[name-defined]
        self.request: type[BaseModel] = create_model("VerifyGroupRequest", bodies=bodies)
        """The class of a request to grade a group. It has the verify requests in `bodies`."""

    def ungraded(self) -> Mapping[str, object]:
        """Return the fields that `/verify` adds to a rollout. They mark it as ungraded."""
        message = (
            f"{self._name} verifies all rollouts of a task together, so this rollout is not graded yet. A collection, "
            f"run_examples or nemo_gym.training gets the rewards with POST {GROUP_PATH}"
        )
        return {"reward": 0.0, **marks_of_failure(UNGRADED, message, self._name)}

    async def results(self, request: Any) -> list[Mapping[str, object]]:
        """Return the fields to add to each rollout: those of its result, or those of its failure."""
        results = await self._verified(request.bodies)
        return [failure_fields(each) if isinstance(each, JudgeFailed) else fields_of(each) for each in results]

    async def _verified(self, bodies: list[object]) -> Sequence[Result]:
        """Call `verify_group`. Raise any failure as `JudgeFailed`, so that the responses are recorded."""
        given = {self._parameter: bodies}
        try:
            if self._handler.is_coroutine:
                results = await self._handler.method(**given)
            else:
                results = await blocking_pool().run(self._handler.method, **given)
        except JudgeFailed:
            raise
        except NemoGymError as error:
            raise JudgeFailed(f"{self._name}: verify_group failed: {error}") from error
        except Exception as error:
            logger.exception("verify_group failed for %d rollouts", len(bodies))
            folder = folder_of(type(self._server))
            fault = fault_in(folder, error) if folder else f"{type(error).__name__}: {error}"
            raise JudgeFailed(f"{self._name}: verify_group raised {fault}; the log has the traceback") from error
        return self._checked(results, len(bodies))

    def _checked(self, results: object, wanted: int) -> Sequence[Result]:
        """Return the results as a list, with a `JudgeFailed` in place of each result whose reward is not finite.

        Raise `JudgeFailed` unless each rollout has exactly one result of an allowed type.
        """
        listed = list(results) if isinstance(results, Iterable) and not isinstance(results, str | Mapping) else None
        found = with_article(type(results).__name__) if listed is None else counted(len(listed), "result")
        if listed is None or len(listed) != wanted:
            raise self._failed(f"{found} for {wanted} rollouts. Return one result per rollout")
        for result in listed:
            if not isinstance(result, BaseVerifyResponse | JudgeFailed | SupportsFloat):
                kind = with_article(type(result).__name__)
                raise self._failed(f"{kind} for a rollout. Return numbers or BaseVerifyResponses")
        return [self._finite(result) for result in listed]

    def _finite(self, result: Result) -> Result:
        """Return a result unchanged, or a `JudgeFailed` if its reward is not finite."""
        if isinstance(result, JudgeFailed):
            return result
        reward = float(result.reward if isinstance(result, BaseVerifyResponse) else result)
        return result if math.isfinite(reward) else self._failed(f"the reward {reward}, which is not finite")

    def _failed(self, returned: str) -> JudgeFailed:
        """Return the failure for an invalid result of `verify_group`. The message has the method's file and line."""
        place = place_of(self._handler.method)
        where = f"{Path(place).name}: " if place else ""
        return JudgeFailed(f"{self._name}: {where}verify_group returned {returned}", server=self._name)


def fields_of(result: BaseVerifyResponse | SupportsFloat) -> Mapping[str, object]:
    """Return the fields that a result of `verify` or `verify_group` adds to its row."""
    if not isinstance(result, BaseVerifyResponse):
        return {"reward": float(result)}
    # Leave out unset marks, because the row may have fields of its own with these names.
    unset = FAILURE_MARKS - result.model_fields_set
    own = result.model_dump(mode="json", exclude={"responses_create_params", "response", "reward", *unset})
    return {**own, "reward": float(result.reward)}


def _body_of(handler: Handler) -> tuple[str, type[BaseVerifyRequest]]:
    """Return the name of `verify_group`'s only parameter, and the class of the verify requests passed in it."""
    parameters = list(handler.signature.parameters.values())
    with placed_at(handler.method):
        if len(parameters) == 1:
            of = get_args(bare(parameters[0].annotation))
            if of and is_class_of(kind := bare(of[0]), BaseVerifyRequest):
                return parameters[0].name, kind
        raise SignatureError(
            f"{handler.method.__qualname__}: the method must take one parameter, the verify requests of a group. "
            "Annotate it with Sequence[BaseVerifyRequest], or with your subclass of BaseVerifyRequest that adds the "
            "row's fields"
        )
