"""Check the language of a text by its script, and with py3langid for languages that share a script."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from nemo_gym import EnvironmentFailed
from resources_servers.instruction_following.constraints.texts import without_unseen

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

Language = Literal[
    "ar", "bg", "bn", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "gu", "he", "hi", "hu", "id", "it", "ja",
    "kn", "ko", "ml", "mr", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sv", "sw", "ta", "te", "th", "tr", "uk",
    "ur", "vi", "zh", "zh-cn", "zh-tw",
]  # fmt: skip

READ_FROM = 20_000
"""The number of characters that are examined. The rest of the text is assumed to be in the same language."""

SHORT, SLACK = 20, 3.0
"""A text with fewer characters than `SHORT` may be `SLACK` less likely than another language, as a logarithm."""

_SCRIPTS: dict[str, frozenset[str]] = {
    "bn": frozenset({"BENGALI"}), "el": frozenset({"GREEK"}), "gu": frozenset({"GUJARATI"}),
    "he": frozenset({"HEBREW"}), "ja": frozenset({"HIRAGANA", "KATAKANA", "CJK"}), "kn": frozenset({"KANNADA"}),
    "ko": frozenset({"HANGUL"}), "ml": frozenset({"MALAYALAM"}), "pa": frozenset({"GURMUKHI"}),
    "ta": frozenset({"TAMIL"}), "te": frozenset({"TELUGU"}), "th": frozenset({"THAI"}),
    **dict.fromkeys(("zh", "zh-cn", "zh-tw"), frozenset({"CJK"})),
    **dict.fromkeys(("ar", "fa", "ur"), frozenset({"ARABIC"})),
    **dict.fromkeys(("bg", "ru", "uk"), frozenset({"CYRILLIC"})),
    **dict.fromkeys(("hi", "mr", "ne"), frozenset({"DEVANAGARI"})),
}  # fmt: skip
_LATIN = frozenset({"LATIN"})
_WORD = re.compile(r"[^\W\d_]{2}")
_MARKS = ".,:;!?()[]{}<>*_#\"'“”‘’«»،؛؟।॥…-–—"


def response_language(text: str, *, language: Language) -> bool:
    """Require a text in the language with this code."""
    return is_in_language(text, language)


def japanese_words(text: str, *, N: Annotated[int, Field(ge=1)]) -> bool:  # noqa: N803 - the data's name
    """Require a Japanese character in every `N`-th word, except in numbers."""
    found = (word.strip(_MARKS) for word in text.split()[N - 1 :: N])
    return all(not word or word.isdigit() or any(map(_is_japanese, word)) for word in found)


def is_in_language(text: str, language: Language) -> bool:
    """Return whether a text is in a language. A text without words, such as numbers, is in none.

    At least half of the letters must be in the language's script. Japanese also needs kana. In Chinese, at most a
    tenth of the letters may be kana. For other languages, py3langid must find it the likeliest of those that share
    their script. A short text may be a bit less likely, because it may consist of names.
    """
    sample = without_unseen(text[:READ_FROM])
    scripts = Counter(_script_of(character) for character in sample if character.isalpha())
    wanted = _SCRIPTS.get(language, _LATIN)
    if not scripts or 2 * sum(scripts[script] for script in wanted) < scripts.total():
        return False
    kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
    if language == "ja":
        return kana > 0
    if "CJK" in wanted:
        return 10 * kana <= scripts.total()
    rivals = frozenset(each for each in get_args(Language) if _SCRIPTS.get(each, _LATIN) == wanted)
    if not _WORD.search(sample):
        return False
    return len(rivals) == 1 or _is_likeliest(language.partition("-")[0], sample, rivals)


def _is_likeliest(language: str, sample: str, rivals: frozenset[str]) -> bool:
    # The detector does not know words in capitals.
    shown = sample.lower() if sample.isupper() else sample
    scores = {found: float(score) for found, score in _detector().rank(shown) if found in rivals}
    return scores[language] >= max(scores.values()) - (SLACK if len(sample) < SHORT else 0.0)


@cache
def _detector() -> LanguageIdentifier:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError as error:
        raise EnvironmentFailed(
            "py3langid is needed to detect languages. Install it: pip install 'nemo-gym[languages]'"
        ) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE)


def _is_japanese(character: str) -> bool:
    return _script_of(character) in _SCRIPTS["ja"]


@cache
def _script_of(character: str) -> str:
    return unicodedata.name(character, "").split(" ")[0].split("-")[0]


CHECKS: dict[str, Callable[..., bool]] = {
    "language:response_language": response_language,
    "count:words_japanese": japanese_words,
}
