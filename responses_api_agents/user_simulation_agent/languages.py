"""Recognition of words, questions and markers in texts of any language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese characters and Japanese kana."""
_HANGUL = re.compile("[\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff]")
_VOWEL_MARKS = re.compile("[\u0640\u064b-\u0652\u0670]")
"""Arabic marks that most texts omit, and the stroke that only lengthens a word."""
_TURKISH = str.maketrans("Iİ", "ıi")
_DOTTED = "i\u0307"
"""The lower-case form of `İ` in languages other than Turkish."""
_QUESTIONS = re.compile(
    "[?؟‽՞፧¿]"
    # After a Greek letter, a semicolon is a question mark.
    "|[\u0370-\u03ff\u1f00-\u1fff][»”\"')]*;"
    # Japanese and Chinese questions may end with a full stop.
    "|(?:です|ます|でした|ました|でしょう|ましょう|ません|だろう|ない|の)か(?:ね|な)?[」』)]*(?:[。.!]|\\s*$)"
    "|[吗嗎][”」』)]*(?:[。.!]|\\s*$)",
    re.MULTILINE,
)


def is_question(text: str) -> bool:
    """Return whether a text has a question mark, or a sentence with a Japanese or Chinese question particle."""
    return bool(_QUESTIONS.search(_plain(text)))


def check_visible(text: str) -> str:
    """Return the text. Raise `ValueError` if it has only spaces and invisible characters."""
    if not _spellings(text)[0].strip():
        raise ValueError("it has only spaces and invisible characters. Write at least one visible character")
    return text


class Word:
    """A word or phrase to find in texts. Case, width of characters, spacing and Arabic vowel marks do not matter.

    Only whole words count. In scripts without spaces between words, any letters may precede or follow the word. Korean
    particles may follow it, too.
    """

    def __init__(self, text: str) -> None:
        self._patterns = [re.compile(r"\s+".join(map(re.escape, spelling.split()))) for spelling in _spellings(text)]

    def is_in(self, text: str) -> bool:
        pairs = zip(self._patterns, _spellings(text), strict=True)
        return any(_is_bounded(spelling, *at) for pattern, spelling in pairs for at in _places(pattern, spelling))


def before(marker: str, text: str) -> str | None:
    """Return the text before a marker, or None if the marker is missing. Full-width forms of the marker count, too."""
    composed = unicodedata.normalize("NFC", text)
    plain = [(char, place) for place, each in enumerate(composed) for char in _plain(each)]
    found = "".join(char for char, _ in plain).find(_plain(marker))
    return None if found < 0 else composed[: plain[found][1]]


def _plain(text: str) -> str:
    """Convert half-width and full-width characters to their normal form, and remove invisible characters."""
    normal = unicodedata.normalize("NFKC", text)
    return "".join(char for char in normal if unicodedata.category(char) != "Cf")


def _spellings(text: str) -> tuple[str, str]:
    """Return two case-folded forms of the text: by the rules of most languages, and by the rules of Turkish."""
    plain = _VOWEL_MARKS.sub("", _plain(text))
    return plain.casefold().replace(_DOTTED, "i"), plain.translate(_TURKISH).casefold()


def _places(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each match of a regex, including overlapping matches."""
    found = pattern.search(text)
    while found:
        yield found.span()
        found = pattern.search(text, found.start() + 1)


def _is_bounded(text: str, start: int, end: int) -> bool:
    """Return whether `start` and `end` bound a word. More Hangul may follow Hangul, because particles are attached."""
    if start and _continues(text[start - 1], text[start]):
        return False
    if end == len(text):
        return True
    last, following = text[end - 1], text[end]
    if unicodedata.category(following)[0] == "M":
        # The following vowel sign or accent modifies the word's last letter, so the text contains another word.
        return False
    return bool(_HANGUL.match(last) and _HANGUL.match(following)) or not _continues(last, following)


def _continues(one: str, other: str) -> bool:
    """Return whether two neighbouring characters belong to one word."""
    are_letters = all(unicodedata.category(char)[0] in "LMN" or char == "_" for char in (one, other))
    return are_letters and not (_UNSPACED.match(one) or _UNSPACED.match(other))
