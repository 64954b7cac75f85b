"""Public import path of `nemo_gym.grading.judge_calls` and `nemo_gym.published.judging`; re-exports only."""

from nemo_gym.errors import JudgeFailed as JudgeError
from nemo_gym.grading.judge_calls import call_judge
from nemo_gym.published.hooks import PublishedHooks  # noqa: F401 - its hooks are used from now on
from nemo_gym.published.judging import judge_failsafe, reraise_judge_errors

__all__ = ["JudgeError", "call_judge", "judge_failsafe", "reraise_judge_errors"]
