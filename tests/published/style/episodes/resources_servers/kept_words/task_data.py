from typing import Literal

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """The fields of a row of this environment."""

    model_config = ConfigDict(extra="forbid")

    word: str
    """The word to say."""
    plan: Literal["good", "wrong", "masked", "dies", "slow_verify", "hangs"] = "good"
