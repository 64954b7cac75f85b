"""Convert a reward model's raw score to the reward: normalise it, subtract the length penalty, and clip it."""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field, FiniteFloat, model_validator

WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]{1,20}"
    r"|(?:[^\w\s]|_){5,20}|(?<!\S)(?:[^\w\s]|_){1,4}(?!\S)"
)
"""A regex for the units that are counted: a word, a part of a very long word, or a character of a CJK script.

Up to 20 symbols count as a word, too, unless they are fewer than 5 and touch a word, as a comma does.
"""


class ShapingConfig(BaseModel):
    """The settings that convert a reward model's score to a reward."""

    normalise: Literal["none", "standard", "sigmoid"] = "none"
    """`standard` is `(score - mean) / std`. `sigmoid` is the logistic function of this value, from 0 to 1."""
    mean: FiniteFloat = 0.0
    std: FiniteFloat = Field(1.0, gt=0)
    length_penalty: FiniteFloat = Field(0.0, ge=0)
    """The amount that is subtracted for each word of the answer beyond `length_free`."""
    length_free: int = Field(0, ge=0)
    clip: tuple[FiniteFloat, FiniteFloat] | None = None
    """The lowest and the highest reward."""
    unfinished_reward: FiniteFloat | None = None
    """The reward of an answer that is empty or was cut off; by default the lower end of `clip`."""

    @model_validator(mode="after")
    def _is_consistent(self) -> ShapingConfig:
        low, high = self.clip or (0.0, 1.0)
        if low >= high:
            raise ValueError(f"clip: the lowest reward {low:g} must be less than the highest, {high:g}")
        if self.clip is None and self.unfinished_reward is None:
            raise ValueError("the reward of an empty or cut-off answer is missing: set clip or unfinished_reward")
        return self

    @property
    def reward_of_nothing(self) -> float:
        """The reward of an answer that cannot be scored because it is empty or was cut off."""
        if self.unfinished_reward is not None:
            return self.unfinished_reward
        assert self.clip is not None
        return self.clip[0]


class Shaped(NamedTuple):
    """A reward, and the three parts that add up to it."""

    reward: float
    normalised: float
    length: float
    """The length penalty, as a number that is 0 or negative."""
    clipping: float
    """The amount by which clipping changes the reward."""


def shaped(score: float, words: int, config: ShapingConfig) -> Shaped:
    """Return an answer's reward and its parts. The reward is the sum of `normalised`, `length` and `clipping`."""
    normalised = _normalised(score, config)
    length = 0.0 - config.length_penalty * max(0, words - config.length_free)
    unclipped = normalised + length
    low, high = config.clip or (-math.inf, math.inf)
    reward = min(max(unclipped, low), high)
    return Shaped(reward, normalised, length, reward - unclipped)


def count_words(text: str) -> int:
    return len(WORD.findall(text))


def _normalised(score: float, config: ShapingConfig) -> float:
    if config.normalise == "none":
        return score
    standard = (score - config.mean) / config.std
    # Use `tanh`, because `exp` in the usual logistic function can overflow.
    return standard if config.normalise == "standard" else 0.5 * (1 + math.tanh(standard / 2))
