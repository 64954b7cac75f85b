"""Which of a game's actions does a text choose?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from nemo_gym.grading.text import last_boxed, strip_reasoning

ANSWER_START, ANSWER_END = "<answer>", "</answer>"


def actions_in(text: str, names: Iterable[str]) -> list[str]:
    r"""The actions that a text names as its answer, in order and as `names` spells them; empty where it names none.

    Read is the last `<answer>…</answer>`, else the last `\boxed{…}`, else the last line that names an action at all.
    Case is ignored, names are whole words, and thinking is left out.
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
    # A number that goes on, as 3 does in 3.5 or in -3, is another one.
    words = "|".join(map(re.escape, names))
    return re.compile(rf"(?<![\w.-])(?:{words})(?![\w-]|\.\d)" if names else r"(?!)")
