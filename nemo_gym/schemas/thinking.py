"""Remove a model's thinking from its text, so that only the answer is graded."""

from __future__ import annotations

import re

_MARK = re.compile(
    r"(?P<opening><think(?:ing)?>|\[THINK\])|(?P<closing></think(?:ing)?>|\[/THINK\])|^[ \t]*(?P<fence>`{3,}|~{3,})",
    re.IGNORECASE | re.MULTILINE,
)


def strip_reasoning(text: str) -> str:
    """Return the text without the parts between `<think>` and `</think>`, `<thinking>` or `[THINK]`.

    An unclosed `<think>` removes everything after it, because truncated reasoning is not an answer. A `</think>`
    without an opening tag removes everything before it, because some chat templates put the `<think>` in the prompt.
    A `<think>` in a fenced code block is code.
    """
    shown: list[str] = []
    start, is_thinking, fence, quoted = 0, False, "", 0
    for mark in _MARK.finditer(text):
        if is_thinking:
            if mark["closing"]:
                start, is_thinking = mark.end(), False
        elif mark["fence"]:
            if not fence:
                fence, quoted = mark["fence"], 0
            elif mark["fence"].startswith(fence):
                fence = ""
        elif mark["opening"]:
            if fence:
                quoted += 1
            else:
                shown.append(text[start : mark.start()])
                is_thinking = True
        elif quoted:
            quoted -= 1
        else:
            shown.clear()
            start, fence = mark.end(), ""
    if not is_thinking:
        shown.append(text[start:])
    return "".join(shown).strip()
