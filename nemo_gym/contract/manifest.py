"""The reward that an environment declares in its `manifest.yaml`: its range, and its better end."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nemo_gym.config.reading import read_yaml
from nemo_gym.config.tree import plain
from nemo_gym.errors import DataError

MANIFEST_FILE = "manifest.yaml"


class DeclaredReward(BaseModel):
    """The declared reward. Other keys of the file describe the environment to people."""

    model_config = ConfigDict(frozen=True)

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
        return f"the reward {reward:g} is not between {low:g} and {high:g}, as {MANIFEST_FILE} declares"


class _File(BaseModel):
    reward: DeclaredReward = Field(default_factory=DeclaredReward)


def declared_reward(folder: Path) -> DeclaredReward:
    """Return what a folder's manifest declares; without one, nothing. Raise `DataError` if it is invalid."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return DeclaredReward()
    try:
        return _File.model_validate(plain(read_yaml(path))).reward
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise DataError(f"{path}: {key}: {problem['msg'].removeprefix('Value error, ')}.") from error
