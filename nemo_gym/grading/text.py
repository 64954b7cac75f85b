"""Find the answer in a text, and normalise texts so that they can be compared."""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

from nemo_gym.schemas.thinking import strip_reasoning as strip_reasoning  # noqa: PLC0414 - re-export


def _number_as_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return f"{Decimal(repr(value)):f}"


AnswerText = Annotated[str, BeforeValidator(_number_as_text, json_schema_input_type=str | int | float)]
"""The type of a row's answer: a string or a number. Numbers are converted to strings without an exponent."""

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
"""Zero-width characters."""
WRAPPING_MARKS = f"*_`$ \t\r\n\u00a0\u202f{INVISIBLE}"
"""Markdown and LaTeX marks, whitespace and invisible characters. Around an answer, they do not change its meaning."""

_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textup|textnormal|emph|mbox|boxed|mathrm|mathbf|mathit|mathsf)\s*"
    r"\{([^{}]*)\}"
)
_LONGEST_CONNECTOR = 60
_CONNECTOR = re.compile(
    r"(?:[\s,;:.$*/|&+()]|\b[A-Za-z](?:_\{?\d\}?)?\s*=|\\[()\[\],;:!. ]|\\(?:q?quad|l?or|vee|land|wedge)(?![A-Za-z])"
    r"|\\(?:text|mathrm|mbox)\s*\{[^{}\w]*(?:or|and)[^{}\w]*\}"
    r"|\b(?:or|and|either|also|maybe|perhaps|possibly|alternatively|even)\b)*",
    re.IGNORECASE,
)
"""A regex for the text between two boxed parts of one answer, such as a comma or "or"."""
_STRUCK = re.compile(
    r"(?<![\w~}$\\])~~(?=[^\s~])[^~\n]{1,1000}(?<=\S)~~(?![\w~{$\\])|<(del|s|strike)>.{0,1000}?</\1>", re.DOTALL
)
"""Markdown or HTML that crosses out a text."""
_DEEPEST_NESTING = 8
_WORD_OR_PART = re.compile(r"\s+|\S{1,1000}")
_STOP_AFTER_MARKS = re.compile(rf"(?<=[*_`$])\.[\s{INVISIBLE}]{{0,20}}\Z")
_MATH_DELIMITER = re.compile(r"\\[()\[\]]")
_LATEX_SPACE = re.compile(r"\\[ ,;:!]|\\q?quad(?![A-Za-z])|~")
_ESCAPED_SIGN = re.compile(r"\\([$%&#_])")
_SPACE = re.compile(r"\s+")

_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_TATWEEL = "\u0640"
_LETTER_SERIES = (
    "أبجدهوزحطي",  # Arabic options follow the order of the numerals, not of the alphabet;
    "ابجدهوزحطي",  # the alef is often written without its hamza,
    "إبجدهوزحطي",  # or with the hamza below.
    "কখগঘঙচছজঝঞ",  # Bengali options follow the consonants,
    "অবডঢ",  # or the letters that sound most like A, B, C and D.
)
_ASCII_OF_LETTER = {letter: chr(ord("A") + place) for series in _LETTER_SERIES for place, letter in enumerate(series)}


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{…}` with its inner braces, or None if there is none.

    If boxes are nested, the inner box counts as the last. A box that is not closed is skipped.
    """
    boxes = _boxes(text)
    return text[boxes[-1].start : boxes[-1].end] if boxes else None


def last_boxes(text: str) -> list[str]:
    r"""Return the contents of the boxes that form the final answer, such as both boxes of `\boxed{1} or \boxed{2}`.

    Usually this is only the last box, as in `last_boxed`. Earlier boxes belong to the answer if connectors, such as
    a comma or "or", join them. Repeated contents are left out. Return an empty list if no box is complete.
    """
    boxes = _boxes(text)
    if not boxes:
        return []
    listed = [boxes.pop()]
    while boxes:
        before, after = boxes.pop(), listed[-1]
        if before.end > after.opening:
            continue
        between = text[before.end + 1 : after.opening]
        if len(between) > _LONGEST_CONNECTOR or not _CONNECTOR.fullmatch(between):
            break
        listed.append(before)
    return list(dict.fromkeys(text[box.start : box.end] for box in reversed(listed)))


class _Box(NamedTuple):
    opening: int
    r"""The index of `\boxed` in the text."""
    start: int
    end: int


def _boxes(text: str) -> list[_Box]:
    r"""Return the complete `\boxed{…}` parts of a text, in the order in which they start."""
    first = text.find("\\boxed")
    if first < 0:
        return []
    open_braces: list[tuple[re.Match[str], bool]] = []
    boxes: list[_Box] = []
    for brace in _BRACES.finditer(text, first):
        if brace[0] == "{" or (brace[0].startswith("\\boxed") and brace[0].endswith("{")):
            open_braces.append((brace, brace[0] != "{"))
        elif brace[0] == "}" and open_braces:
            opening, is_box = open_braces.pop()
            if is_box:
                boxes.append(_Box(opening.start(), opening.end(), brace.start()))
    return sorted(boxes, key=lambda box: box.start)


def option_letter(text: str) -> str | None:
    """Return the letter A to Z of a one-letter option label, or None for any other text.

    Accepts Latin letters in either case (also full-width letters), Arabic letters in the order of the numerals
    (أ ب ج د ه …) and Bengali letters (ক খ গ ঘ ঙ …, also অ ব ড ঢ).
    """
    label = _composed(text).translate(_HALF_WIDTH).replace(_TATWEEL, "").strip()
    if len(label) != 1:
        return None
    if label.isascii():
        return label.upper() if label.isalpha() else None
    return _ASCII_OF_LETTER.get(label)


def unwrapped(text: str) -> str:
    r"""Remove `\text{}` and similar commands, `\(…\)`, and outer marks such as `$…$` or `**`.

    Full-width characters become ASCII characters. Crossed-out text (`~~…~~`) is removed, and so is a full stop after
    closing marks. Case and inner spaces stay the same.
    """
    plain = _STRUCK.sub("", _composed(text)).translate(_HALF_WIDTH)
    for _ in range(_DEEPEST_NESTING):
        plain, count = _TEXT_COMMAND.subn(r"\1", plain)
        if not count:
            break
    plain = _STOP_AFTER_MARKS.sub("", _MATH_DELIMITER.sub("", plain))
    inside = plain.strip(WRAPPING_MARKS)
    before, _, after = plain.partition(inside) if inside else ("", "", "")
    # Keep the dollar sign of `$5`, which is not a mark.
    return f"${inside}" if before.endswith("$") and "$" not in after and inside[:1].isdigit() else inside


def _composed(text: str) -> str:
    """Convert a text to NFC in parts of limited length, because n combining marks on one letter take O(n²) time."""
    return "".join(unicodedata.normalize("NFC", part) for part in _WORD_OR_PART.findall(text))


def normalised(text: str, *, keeps_case: bool = False) -> str:
    """Return the normal form of a short answer, in which different spellings of the answer are equal.

    In addition to `unwrapped`, replace each run of whitespace or LaTeX spacing by one space, and remove escapes and a
    final full stop. Unless `keeps_case` is set, the text is case-folded.
    """
    plain = _ESCAPED_SIGN.sub(r"\1", _LATEX_SPACE.sub(" ", unwrapped(text)))
    tidy = _SPACE.sub(" ", plain).strip(WRAPPING_MARKS).rstrip(". ")
    return tidy if keeps_case else tidy.casefold()
