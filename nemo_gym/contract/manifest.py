"""The `manifest.yaml` of an environment. It declares the range of the rewards, and whether higher ones are better."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nemo_gym.config.reading import read_yaml
from nemo_gym.config.tree import plain
from nemo_gym.errors import DataError
from nemo_gym.text import closest

MANIFEST_FILE = "manifest.yaml"
Profile = Literal["custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"]


class DeclaredReward(BaseModel):
    """The range of the rewards, if it is declared, and whether higher rewards are better."""

    # Forbid unknown keys, because a misspelled `range` would disable the check of the rewards.
    model_config = ConfigDict(frozen=True, extra="forbid")

    range: tuple[float, float] | None = None
    """The lowest and the highest reward."""
    higher_is_better: bool = True
    """Whether the highest reward is the best one."""

    @field_validator("range")
    @classmethod
    def _is_ascending(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not value[0] < value[1]:
            raise ValueError("the first number must be less than the second")
        return value

    def problem_of(self, reward: float) -> str | None:
        """Return what is wrong with a reward, or None if the range contains it."""
        if self.range is None or self.range[0] <= reward <= self.range[1]:
            return None
        low, high = self.range
        return f"the reward {reward:g} is not between {low:g} and {high:g}, the range that {MANIFEST_FILE} declares"


class Manifest(BaseModel):
    """The keys of a manifest. Only `reward` is checked in tests of the environment; the other keys are for readers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reward: DeclaredReward = Field(default_factory=DeclaredReward)
    name: str | None = None
    version: str | int | float | None = None
    kind: Literal["environment", "benchmark"] | None = None
    integration_profile: (
        Literal["custom-gym-verifier", "custom-gym-agent-loop", "external-agent-loop", "external-rollout-driver"]
        | None
    ) = None
    domain: str | None = None
    description: str | None = None
    modality: Any = None
    licensing: Any = None
    authors: Any = None
    determinism: Any = None
    resources_server: Any = None
    agent_server: Any = None
    model_server: Any = None
    datasets: Any = None
    rollout_driver: Any = None
    grading_mode: Any = None
    session_model: Any = None
    state: Any = None
    sandbox: Any = None
    canonical_split: str | None = None
    standard_prompt_config: Any = None
    adopted_from: Any = None
    lifecycle: Literal["active", "deprecated"] | None = None


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raise `DataError` with the file and the key if it is invalid."""
    content = plain(read_yaml(path))
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            known = [*Manifest.model_fields, *(f"reward.{name}" for name in DeclaredReward.model_fields)]
            meant = closest(key, known)
            hint = f" Did you mean '{meant}'?" if meant else f" The keys are: {', '.join(known)}."
            raise DataError(f"{path}: '{key}' is not a key of a manifest.{hint}") from error
        raise DataError(f"{path}: {key}: {problem['msg'].removeprefix('Value error, ')}.") from error


def declared_reward(folder: Path) -> DeclaredReward:
    """Return the reward that a folder's manifest declares, or the defaults if there is no manifest.

    Raise `DataError` if the manifest is invalid.
    """
    path = folder / MANIFEST_FILE
    return read_manifest(path).reward if path.is_file() else DeclaredReward()
