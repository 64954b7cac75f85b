"""Find the game actions that a model's answer names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from nemo_gym.grading.text import last_boxed, strip_reasoning

ANSWER_START, ANSWER_END = "<answer>", "</answer>"


def actions_in(text: str, names: Iterable[str]) -> list[str]:
    r"""Return the actions that the answer in a text names, in order and as spelled in `names`.

    The answer is the last `<answer>…</answer>`. If there is none, it is the last `\boxed{…}`, or else the last line
    that names an action. Case is ignored, names must be whole words, and the model's reasoning is removed first.
    """
    spelt = {name.casefold(): name for name in names}
    pattern = _pattern(tuple(sorted(spelt, key=len, reverse=True)))
    shown = strip_reasoning(text)
    answer = _last_tagged(shown)
    if answer is None:
        answer = last_boxed(shown)
    for part in reversed(shown.splitlines()) if answer is None else [answer]:
        found = [spelt[match[0]] for match in pattern.finditer(part.casefold())]
        if found:
            return found
    return []


def _last_tagged(text: str) -> str | None:
    end = text.rfind(ANSWER_END)
    start = text.rfind(ANSWER_START, 0, max(end, 0))
    return None if start < 0 else text[start + len(ANSWER_START) : end]


@lru_cache(maxsize=64)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    # Do not match within a number: the 3 in 3.5 or -3 is not the action 3.
    words = "|".join(map(re.escape, names))
    return re.compile(rf"(?<![\w.-])(?:{words})(?![\w-]|\.\d)" if names else r"(?!)")
