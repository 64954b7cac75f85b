"""Find the option that a text chooses, by the grading mode of the row or the configuration."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from nemo_gym.grading import last_boxed, normalised, option_letter, unwrapped

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]
GRADING_MODES: tuple[GradingMode, ...] = get_args(GradingMode)
DEFAULT_MODE: GradingMode = "strict_single_letter_boxed"

Search = Callable[[str, str], str | None]
"""Returns the capture of a pattern's last match in a text, or None."""

_TATWEEL = "\u0640"
_DASHES = "-–—"
_ANSWER = re.compile(r"\banswer\s*[:：]", re.IGNORECASE)
_ANSWER_IN_MARKDOWN = re.compile(r"answer[*_`]*\s*[:：]", re.IGNORECASE)
_STRONG_MARKS = re.compile(r"\*\*|__|`")
_CHOICE_IN_MARKDOWN = re.compile(r"(?P<opening>[(\[]?)\s*(?P<letter>\w)(?P<closing>\s*[)\]])?(?P<rest>.*)", re.DOTALL)
_CONNECTOR = r"(?:[/&]|(?:or|and|أو|و|অথবা|বা|এবং)(?!\w))"
_ANOTHER_CHOICE = re.compile(
    rf"\s*{_CONNECTOR}|[\s.:)\]]*(?:{_CONNECTOR}|[,;،])\s*[(\[]?(?P<letter>\w)(?!\w)", re.IGNORECASE
)
_WORD_FOLLOWS = re.compile(r"\s+\w")
_LETTERS_THAT_ARE_WORDS = frozenset("AI")


@dataclass(frozen=True)
class Options:
    """The options of a question: each letter with its normalised texts."""

    texts: Mapping[str, tuple[str, ...]]

    @classmethod
    def of_row(cls, options: Iterable[Mapping[str, str | None]]) -> Options:
        """Parse a row's list of `{letter: text}`. An option without a text can still be chosen by its letter."""
        texts: dict[str, tuple[str, ...]] = {}
        for option in options:
            for label, text in option.items():
                letter = letter_of_label(label)
                known = normalised(text or "")
                texts[letter] = (*texts.get(letter, ()), *([known] if known else []))
        return cls(texts)

    def allowed(self, letter: str | None) -> str | None:
        """Return the letter if it is an option's, or if the row lists no options."""
        return letter if not self.texts or letter in self.texts else None

    def can_be_chosen(self, letter: str, *, by_pattern: bool) -> bool:
        """Return whether any text can choose a letter. Patterns and rows without options allow every letter."""
        return letter in self.texts or ((by_pattern or not self.texts) and option_letter(letter) == letter)

    def with_text(self, text: str) -> str | None:
        """Return the letter of the only option with exactly this text."""
        wanted = normalised(text)
        return _only(letter for letter, texts in self.texts.items() if wanted in texts)

    def mentioned_in(self, text: str) -> str | None:
        """Return the letter of the only option mentioned in a text, but not within a longer word or number."""
        within = normalised(text)
        return _only(
            letter for letter, texts in self.texts.items() if any(_is_mentioned(option, within) for option in texts)
        )


def letter_of_label(label: str) -> str:
    """Normalise an option's label for comparison: A to Z, or else the label in upper case."""
    return option_letter(label) or label.strip().upper()


def choice_in(
    text: str, options: Options, mode: GradingMode, patterns: Sequence[str] = (), search: Search | None = None
) -> str | None:
    """Return the letter that a text chooses, or None.

    Tries the patterns first, in order and with `search`. If none of them finds a choice, the mode decides.
    """
    for pattern in patterns:
        assert search is not None, "patterns need a search"
        captured = search(pattern, text)
        choice = None if captured is None else _captured_choice(captured, options)
        if choice is not None:
            return choice
    return _READERS[mode](text, options)


def _captured_choice(captured: str, options: Options) -> str | None:
    """Return the captured choice. A single letter need not be an option, because the pattern's author chose it."""
    plain = unwrapped(captured)
    return (
        option_letter(plain.strip("()[].:, "))
        or options.with_text(captured)
        or options.allowed(_leading_letter(plain))
    )


def _strict_boxed(text: str, options: Options) -> str | None:
    boxed = last_boxed(text)
    return None if boxed is None else options.allowed(_leading_letter(unwrapped(boxed)))


def _lenient_boxed(text: str, options: Options) -> str | None:
    boxed = last_boxed(text)
    if boxed is None:
        return None
    return (
        options.allowed(_leading_letter(unwrapped(boxed))) or options.with_text(boxed) or options.mentioned_in(boxed)
    )


def _answer_colon(text: str, options: Options) -> str | None:
    line = _last_labelled(text, _ANSWER)
    if line is None:
        return None
    plain = unwrapped(line)
    return options.allowed(option_letter(plain)) or options.with_text(line) or options.allowed(_leading_letter(plain))


def _answer_colon_markdown(text: str, options: Options) -> str | None:
    line = _last_labelled(text, _ANSWER_IN_MARKDOWN)
    if line is None:
        return None
    plain = unwrapped(_STRONG_MARKS.sub("", line))
    return options.allowed(option_letter(plain)) or options.with_text(plain) or options.allowed(_single_choice(plain))


_READERS: Mapping[GradingMode, Callable[[str, Options], str | None]] = {
    "strict_single_letter_boxed": _strict_boxed,
    "lenient_boxed": _lenient_boxed,
    "lenient_answer_colon": _answer_colon,
    "lenient_answer_colon_md": _answer_colon_markdown,
}


def _leading_letter(plain: str) -> str | None:
    """Return the letter of `B`, `b`, `B: …`, `B) …`, `B. …` or `B - …`.

    Before a dash only a capital counts, because `a - 1` is algebra.
    """
    first, rest = plain[:1], plain[1:].lstrip(_TATWEEL).lstrip()
    letter = option_letter(first)
    if letter is None or not rest:
        return letter
    return letter if rest[0] in ":)." or (rest[0] in _DASHES and not first.islower()) else None


def _single_choice(plain: str) -> str | None:
    """Return the letter of `(B)`, `B) …` or `B because …`, but None for `A or B`, `A, B` or `A/B`."""
    choice = _CHOICE_IN_MARKDOWN.match(plain)
    letter = option_letter(choice["letter"]) if choice else None
    if choice is None or letter is None:
        return None
    rest = choice["rest"].lstrip(_TATWEEL)
    another = _ANOTHER_CHOICE.match(rest)
    if another and (another["letter"] is None or option_letter(another["letter"])):
        return None
    if choice["opening"] or choice["closing"] or not rest:
        return letter
    is_word = choice["letter"].islower() or unicodedata.category(rest[0])[0] in "LMN"
    is_article = letter in _LETTERS_THAT_ARE_WORDS and _WORD_FOLLOWS.match(rest)
    return None if is_word or is_article else letter


def _last_labelled(text: str, label: re.Pattern[str]) -> str | None:
    """Return the rest of the line after the last label, or the next line if that is empty."""
    ends = [match.end() for match in label.finditer(text)]
    if not ends:
        return None
    after = text[ends[-1] :].lstrip(" \t\r\n*_`")
    return after.partition("\n")[0]


def _is_mentioned(option: str, text: str) -> bool:
    # The number 5 is not mentioned in 15, -5, 0.5 or 5,000.
    return re.search(rf"(?<![\w.−-])(?<!\d,){re.escape(option)}(?!\w)(?![.,]\d)", text) is not None


def _only(letters: Iterable[str]) -> str | None:
    found = list(letters)
    return found[0] if len(found) == 1 else None
