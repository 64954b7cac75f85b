"""Helpers for verifiers: extract and compare answers, ask a judge model, and run untrusted code and slow jobs.

Names are imported on first use, so a worker process imports only what its job needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_gym.lazy import lazy_names

if TYPE_CHECKING:
    from nemo_gym.grading.actions import actions_in as actions_in
    from nemo_gym.grading.answers import final_answer as final_answer
    from nemo_gym.grading.answers import is_claimed as is_claimed
    from nemo_gym.grading.answers import same_text as same_text
    from nemo_gym.grading.code import CodeGrade as CodeGrade
    from nemo_gym.grading.code import CodeTests as CodeTests
    from nemo_gym.grading.code import TestResult as TestResult
    from nemo_gym.grading.code import grade_code as grade_code
    from nemo_gym.grading.code import last_code_block as last_code_block
    from nemo_gym.grading.confined import ConfinedPython as ConfinedPython
    from nemo_gym.grading.confined import Limits as Limits
    from nemo_gym.grading.expressions import Comparison as Comparison
    from nemo_gym.grading.expressions import MathEquality as MathEquality
    from nemo_gym.grading.judge import Judge as Judge
    from nemo_gym.grading.judge import JudgeCall as JudgeCall
    from nemo_gym.grading.judge import JudgeConfig as JudgeConfig
    from nemo_gym.grading.judge import PromptFile as PromptFile
    from nemo_gym.grading.judge import Verdict as Verdict
    from nemo_gym.grading.judge import filled_with as filled_with
    from nemo_gym.grading.judge import read_prompt as read_prompt
    from nemo_gym.grading.judge_calls import call_judge as call_judge
    from nemo_gym.grading.numbers import has_asked_unit as has_asked_unit
    from nemo_gym.grading.numbers import number_in as number_in
    from nemo_gym.grading.numbers import same_number as same_number
    from nemo_gym.grading.patterns import PatternFailed as PatternFailed
    from nemo_gym.grading.patterns import PatternSearch as PatternSearch
    from nemo_gym.grading.rubric import Criterion as Criterion
    from nemo_gym.grading.rubric import Rubric as Rubric
    from nemo_gym.grading.rubric import read_rubric as read_rubric
    from nemo_gym.grading.special_tokens import SpecialTokens as SpecialTokens
    from nemo_gym.grading.special_tokens import visible_text as visible_text
    from nemo_gym.grading.text import AnswerText as AnswerText
    from nemo_gym.grading.text import last_boxed as last_boxed
    from nemo_gym.grading.text import last_boxes as last_boxes
    from nemo_gym.grading.text import normalised as normalised
    from nemo_gym.grading.text import option_letter as option_letter
    from nemo_gym.grading.text import strip_reasoning as strip_reasoning
    from nemo_gym.grading.text import unwrapped as unwrapped
    from nemo_gym.grading.workers import WorkerCrashed as WorkerCrashed
    from nemo_gym.grading.workers import WorkerFailed as WorkerFailed
    from nemo_gym.grading.workers import WorkerNotStarted as WorkerNotStarted
    from nemo_gym.grading.workers import WorkerPool as WorkerPool
    from nemo_gym.grading.workers import WorkersBusy as WorkersBusy
    from nemo_gym.grading.workers import WorkerTimedOut as WorkerTimedOut

_HOMES = {
    "actions": ("actions_in",),
    "answers": ("final_answer", "is_claimed", "same_text"),
    "code": ("CodeGrade", "CodeTests", "TestResult", "grade_code", "last_code_block"),
    "confined": ("ConfinedPython", "Limits"),
    "expressions": ("Comparison", "MathEquality"),
    "judge": ("Judge", "JudgeCall", "JudgeConfig", "PromptFile", "Verdict", "filled_with", "read_prompt"),
    "judge_calls": ("call_judge",),
    "numbers": ("has_asked_unit", "number_in", "same_number"),
    "patterns": ("PatternFailed", "PatternSearch"),
    "rubric": ("Criterion", "Rubric", "read_rubric"),
    "special_tokens": ("SpecialTokens", "visible_text"),
    "text": ("AnswerText", "last_boxed", "last_boxes", "normalised", "option_letter", "strip_reasoning", "unwrapped"),
    "workers": ("WorkerCrashed", "WorkerFailed", "WorkerNotStarted", "WorkerPool", "WorkerTimedOut", "WorkersBusy"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - all of them are strings

__getattr__ = lazy_names(__name__, _HOME_OF)
