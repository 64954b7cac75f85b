"""Test cases for a verifier, read from a file: full reward, zero reward, malformed requests, and determinism."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from nemo_gym.errors import DataError
from nemo_gym.jsonl import JsonObject, read_lines

DUE = {"full_reward": 1.0, "zero_reward": 0.0}


class VerifierCase(BaseModel):
    """A test case: a request to a verifier, and the expected reward or error."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Literal["full_reward", "zero_reward", "malformed", "determinism"]
    request: JsonObject
    """The request to `verify`."""
    expected_reward: float | None = None
    """Default: 1 for `full_reward`, 0 for `zero_reward`, and any reward for `determinism`."""
    expected_error: str | None = None
    """A string that `<error class>: <message>` of the raised error must contain."""

    @model_validator(mode="after")
    def _expects_one_thing(self) -> VerifierCase:
        if self.expected_reward is not None and self.expected_error is not None:
            raise ValueError("a case expects a reward or an error, not both")
        if self.kind == "malformed" and self.expected_reward is None and self.expected_error is None:
            raise ValueError("a case of kind 'malformed' needs expected_error or expected_reward")
        return self

    @property
    def due(self) -> float | None:
        """The reward that the verifier must return if the case does not expect an error. None accepts any reward."""
        return DUE.get(self.kind) if self.expected_reward is None else self.expected_reward


@dataclass(frozen=True)
class VerifierFixture:
    """The test setup of a verifier: how to create and call it, and the file with its cases."""

    server_factory: Callable[[], Any]
    """A function that returns a fresh server for each case."""
    request_model: type[BaseModel]
    """The request type of `verify`."""
    cases_path: str | Path
    """A JSON Lines file with one `VerifierCase` per line."""
    invoke: Callable[..., object] | None = None
    """A function from `(server, request)` to the answer, awaitable or not; by default `server.verify(request)`."""
    reseed: Callable[[], object] | None = None
    """A function called before each verification, to reset the verifier's random number generators."""


class ExercisedCase(NamedTuple):
    """The result of a case: the rewards it earned, or the error it raised."""

    name: str
    rewards: tuple[float, ...]
    error: str | None


async def exercise_verifier_fixture(fixture: VerifierFixture) -> list[ExercisedCase]:
    """Run every case with the verifier.

    Raise an `AssertionError` that lists all failed cases, or a `DataError` if the file is empty or invalid.
    """
    cases = list(_cases_of(Path(fixture.cases_path)))
    exercised = [await _exercise(fixture, case) for case in cases]
    pairs = zip(cases, exercised, strict=True)
    failed = [f"{case.name} ({case.kind}): {text}" for case, outcome in pairs if (text := _problem(case, outcome))]
    if failed:
        raise AssertionError(f"{fixture.cases_path}: {len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed))
    return exercised


def _cases_of(path: Path) -> list[VerifierCase]:
    cases = []
    for number, _, row in read_lines(path):
        try:
            cases.append(VerifierCase.model_validate(row))
        except ValidationError as error:
            problems = "; ".join(": ".join(map(str, [*each["loc"], each["msg"]])) for each in error.errors())
            raise DataError(f"{path}:{number}: not a verifier case: {problems}.") from error
    if not cases:
        raise DataError(
            f"{path}: no cases found. Write one JSON object per line, with the keys name, kind, request and "
            "expected_reward."
        )
    return cases


async def _exercise(fixture: VerifierFixture, case: VerifierCase) -> ExercisedCase:
    server = fixture.server_factory()
    rewards = []
    try:
        for _ in range(2 if case.kind == "determinism" else 1):
            if fixture.reseed is not None:
                fixture.reseed()
            request = fixture.request_model.model_validate(case.request)
            answer = fixture.invoke(server, request) if fixture.invoke else server.verify(request)
            rewards.append(_reward_of(await answer if inspect.isawaitable(answer) else answer))
    except Exception as error:  # noqa: BLE001 - an error may be what the case expects
        return ExercisedCase(case.name, tuple(rewards), f"{type(error).__name__}: {error}")
    return ExercisedCase(case.name, tuple(rewards), None)


def _reward_of(answer: Any) -> float:
    return float(answer["reward"] if isinstance(answer, Mapping) else getattr(answer, "reward", answer))


def _problem(case: VerifierCase, outcome: ExercisedCase) -> str | None:
    if case.expected_error is not None:
        if outcome.error is None:
            return f"expected an error with '{case.expected_error}', earned {outcome.rewards[0]:g}"
        return None if case.expected_error in outcome.error else f"expected '{case.expected_error}': {outcome.error}"
    if outcome.error is not None:
        return outcome.error
    first, last = outcome.rewards[0], outcome.rewards[-1]
    if not math.isfinite(first):
        return f"the reward {first} is not finite"
    if first != last:
        return f"earned {first:g} the first time and {last:g} the second time"
    if case.due is not None and not math.isclose(first, case.due, abs_tol=1e-9):
        return f"expected {case.due:g}, earned {first:g}"
    return None
