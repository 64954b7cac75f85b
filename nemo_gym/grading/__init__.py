"""The shelf that verifiers share: find an answer, compare it, ask a judge."""

from nemo_gym.grading.patterns import PatternFailed, PatternSearch
from nemo_gym.grading.text import last_boxed, normalised, option_letter, strip_reasoning, unwrapped

__all__ = [
    "PatternFailed",
    "PatternSearch",
    "last_boxed",
    "normalised",
    "option_letter",
    "strip_reasoning",
    "unwrapped",
]
