"""Find the option that a text chooses. The rules depend on the grading mode."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from nemo_gym.grading import last_boxes, normalised, option_letter, unwrapped
from resources_servers.mcqa.hedges import FITS_TOO, chooses_more

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]
GRADING_MODES: tuple[GradingMode, ...] = get_args(GradingMode)
DEFAULT_MODE: GradingMode = "strict_single_letter_boxed"

Search = Callable[[str, str], str | None]
"""A function that returns the capture of a regex's last match in a text, or None."""

_TATWEEL = "\u0640"
_DASHES = "-–—"
_ANSWER = re.compile(r"\banswer\s*[:：]", re.IGNORECASE)
_ANSWER_IN_MARKDOWN = re.compile(r"answer[*_`]*\s*[:：]", re.IGNORECASE)
_STRONG_MARKS = re.compile(r"\*\*|__|`")
_CHOICE_IN_MARKDOWN = re.compile(
    r"[(\[]?[\s*_`]*(?P<letter>[^\W_])(?P<closing>\s*[)\]]|\*\*|__|`)?(?P<rest>.*)", re.DOTALL
)
_SEPARATORS = r"\s,;،؛、。।・·•‧…⋯.:?!()\[\]|¦*_$–—-"
_CONNECTOR = r"(?:[/&∨∧]|\\(?:lor|vee|land|wedge)(?![a-z])|(?:or|and|أو|و|অথবা|বা|এবং)(?!\w))"
_ANOTHER_CHOICE = re.compile(
    rf"\s*{_CONNECTOR}|[\s.:)\]]*(?:{_CONNECTOR}|[,;،+=>]|to(?!\w))\s*[(\[]?(?P<letter>\w)(?!\w)(?P<word>\s+\w)?",
    re.IGNORECASE,
)
_WORD_FOLLOWS = re.compile(r"\s+\w")
_WORDS_OF_ONE_LETTER = frozenset("AI")
_REASON_FOLLOWS = re.compile(
    r"\s+(?:because|since|as|is|given that|due to|based on|by|from|according to|per|which|that|it|this|the|therefore"
    r"|thus|follows|matches|fits|instead|rather than)(?![\w-])"
)
"""A regex for words that can follow the option letter A or I, but not the article "A" or the pronoun "I"."""
_PART_OF_A_WORD = re.compile(r"['’]\w|[-‐‑][a-z]|\.\w(?!\w)|[+#^_]")
"""A regex for the rest of a word after its first letter, as in `I'm`, `A-level`, `D.C.` or `C++`."""
_LINE_END = re.compile(r"(?<![,;/&])(?<![,;/&][ \t])\n(?!\s*(?:or(?!\w)|[,;/&]))", re.IGNORECASE)
"""A regex for a line end, unless the next line continues the answer with `or …`."""
_LABEL_END = re.compile(r"[\s:).\]*_`]*+")
_TEXT_OPENING = re.compile(rf"^[{_DASHES}(\[]\s*+")

_MAYBE = (
    r"(?:maybe|perhaps|possibly|even|also|alternatively|plus|as well as|but|else|otherwise|if\s+not|rather|no|wait"
    r"|(?:it\s+)?(?:could|may|might)\s+(?:also\s+)?be)(?!\w)"
)
_BETWEEN_CHOICES = re.compile(
    rf"(?:[{_SEPARATORS}]|\\(?![a-z]{{2}})|\d+\s*%|</?[a-z]+\s*/?>)*+"
    rf"(?P<connector>(?:{_CONNECTOR}|{_MAYBE}|[→⇒]|[=-]>)[\s,(\[*_]*+(?:{_MAYBE}[\s,(\[*_]*+)*+)?"
)
_LISTED_LETTER = re.compile(rf"(?P<letter>[^\W_])(?P<rest>[/&∨∧\\<{_SEPARATORS}].*|\Z)", re.DOTALL)
_NOT = r"(?:not|never|no longer)(?!\w)|n['’]t(?!\w)"
_WRONG = r"(?:not|wrong|incorrect|false|impossible|excluded|unlikely)(?!\w)"
_REJECTION = re.compile(
    rf"[\s().,:;\]*_?!]*+(?:(?:is|are|was|were|can|could|do|does|did|has|would)\s*(?:{_NOT})|cannot(?!\w)"
    rf"|(?:is|are|was|seems|looks)\s+(?:\w+\s+)?{_WRONG}|(?:(?<=\?)|(?<=\?\s))no(?!\w)|[❌❎✗✘✖☒⛔🚫👎]"
    r"|(?:wrong|incorrect|false)[\s).,:;\]*_?!]*\Z)"
)
_NEGATION = re.compile(
    r"(?<!\w)(?:not|never|neither|nor|none|cannot|without|except|excluding|anything but|other than|rather than"
    r"|instead of|unless|wrong|incorrect|false|no\s*$|لا|ليس|ليست|غير|না|নয়|নয়)(?!\w)"
    r"|n['’]t(?!\w)|\\(?:lnot|neg|not)(?![a-z])"
)
_LIST_BEFORE = re.compile(rf"(?:(?:(?<!\w)\w|\d),|(?<!\w){_CONNECTOR})\s*$")
_LIST_AFTER = re.compile(rf"\s*{_CONNECTOR}")
_WORD = re.compile(r"[^\W\d_]{3}")
_HARMLESS = r"(?:approx|sim|simeq|equiv|therefore|implies|(?:long)?rightarrow|to|q?quad|left|displaystyle)(?![a-z])"
_OPERATOR_BEFORE = re.compile(
    rf"(?:[-+−*/^_÷×·<>≤≥≠]|!=|\\(?!{_HARMLESS})[a-z]+\s*[({{]?|[}}^_]\s*\{{|(?<=\w)\(|\d\s*:)\s*$", re.IGNORECASE
)
_OPERATOR_AFTER = re.compile(
    r"\s*(?:[-+−–*/÷×·<>≤≥≠!]|,\s*[-\d(]|:\d|to(?!\w)|\^(?!\s*\{?\s*\\circ)"
    r"|\\(?:cdot|times|div|pm|mp|neq?|leq?|geq?|lt|gt)(?![a-z]))"
)


@dataclass(frozen=True)
class Options:
    """The options of a question. `texts` maps each letter to its normalised texts, in their original case."""

    texts: Mapping[str, tuple[str, ...]]

    @classmethod
    def of_row(cls, options: Iterable[Mapping[str, str | None]]) -> Options:
        """Parse a row's list of `{letter: text}`. An option without a text can still be chosen by its letter.

        Raises `ValueError` for two labels of the same letter, such as `G` and `g`.
        """
        texts: dict[str, tuple[str, ...]] = {}
        labels: dict[str, str] = {}
        for option in options:
            for label, text in option.items():
                letter = letter_of_label(label)
                if labels.setdefault(letter, label.strip()) != label.strip():
                    raise ValueError(f"the labels '{labels[letter]}' and '{label}' are the same letter")
                known = normalised(text or "", keeps_case=True)
                texts[letter] = (*texts.get(letter, ()), *([known] if known else []))
        return cls(texts)

    def allowed(self, letter: str | None) -> str | None:
        """Return `letter` if it is the letter of an option or the row does not list options, otherwise None."""
        return letter if not self.texts or letter in self.texts else None

    def labelled(self, text: str) -> str | None:
        """Return the label of the option whose label is the whole text, such as `B` or `1`, or None."""
        label = letter_of_label(text)
        return label if label in self.texts else None

    def can_be_chosen(self, letter: str, *, by_pattern: bool) -> bool:
        """Return whether an answer can choose this letter. Patterns and rows without options allow every letter."""
        return letter in self.texts or ((by_pattern or not self.texts) and option_letter(letter) == letter)

    def with_text(self, text: str) -> str | None:
        """Return the letter of the only option with this text. Case matters only if options differ by case alone."""
        wanted = normalised(text, keeps_case=True)
        return self._only_one(lambda option: option == wanted) or self._only_one(
            lambda option: option.casefold() == wanted.casefold()
        )

    def mentioned_in(self, text: str) -> str | None:
        """Return the letter of the only option that a text mentions, or None.

        A mention within a longer word, a number, a formula or a list does not count. Neither does a negated mention.
        """
        within = normalised(text, keeps_case=True)
        folded = within.casefold()
        mentioned = {
            option for texts in self.texts.values() for option in texts if _mention(option.casefold(), folded)
        }
        if len({option.casefold() for option in mentioned}) != 1:
            return None
        option = next(iter(mentioned)).casefold()
        if not _is_affirmed(option, folded):
            return None
        return self._only_one(lambda each: each in mentioned and _mention(each, within) is not None) or self._only_one(
            lambda each: each in mentioned
        )

    def goes_on(self, letter: str, rest: str) -> bool:
        """Return whether the text after a letter rejects this letter or chooses another letter as well."""
        after_own = self.after_text(letter, rest)
        after = normalised(rest) if after_own is None else after_own
        own_case = normalised(rest, keeps_case=True)
        return (
            _REJECTION.match(after) is not None
            or self._chooses_another(letter, after)
            or (after_own is not None and self._names_another(letter, after_own))
            or chooses_more(own_case[max(0, len(own_case) - len(after)) :], self._others(letter))
        )

    def after_text(self, letter: str, rest: str) -> str | None:
        """Return the rest of a text that begins with the text of the letter's option. Return None for other texts."""
        label = _LABEL_END.match(rest)
        start = normalised(rest[label.end() if label else 0 :])
        texts = sorted((text.casefold() for text in self.texts.get(letter, ())), key=len, reverse=True)
        for begun in (start, _TEXT_OPENING.sub("", start, count=1)):
            for text in texts:
                after = _after(begun, text)
                if after is not None:
                    return after
        return None

    def has_text_of_another(self, letter: str, rest: str) -> bool:
        """Return whether the text after a letter, such as `(London)` or `. London`, is the text of another option."""
        text = _LABEL_END.sub("", rest, count=1)
        # Also try the text with its label, because an option such as `.5` begins like the end of a label.
        forms = dict.fromkeys((rest[1:], text, _TEXT_OPENING.sub("", text, count=1).rstrip(")]. ")))
        return next((named for form in forms if (named := self.with_text(form))), letter) != letter

    def _chooses_another(self, letter: str, after: str) -> bool:
        is_joined, item = _next_item(after)
        other, rest = self._listed_letter(item)
        if other in (None, letter):
            others = [each for each in self.texts if each != letter]
            return is_joined and any(self.after_text(each, item) is not None for each in others)
        joins_more, next_item = _next_item(rest)
        return (
            is_joined
            or joins_more
            or not next_item
            or FITS_TOO.match(rest) is not None
            or self._listed_letter(next_item)[0] is not None
            or self.after_text(other or "", rest) is not None
        )

    def _names_another(self, letter: str, after: str) -> bool:
        """Return whether the text of another option follows, with only punctuation before it."""
        item = _next_item(after)[1]
        return any(
            self.after_text(other, form) is not None for other in self._others(letter) for form in (after, item)
        )

    def _others(self, letter: str) -> set[str]:
        return {label for label in self.texts if label != letter}

    def _listed_letter(self, text: str) -> tuple[str | None, str]:
        """Return a text's leading option letter and the rest. The letter is None for `b is wrong` and `blue`."""
        listed = _LISTED_LETTER.match(text)
        letter = self.allowed(option_letter(listed["letter"])) if listed else None
        return (letter, listed["rest"]) if listed and letter else (None, text)

    def _only_one(self, is_match: Callable[[str], bool]) -> str | None:
        found = [letter for letter, texts in self.texts.items() if any(map(is_match, texts))]
        return found[0] if len(found) == 1 else None


def letter_of_label(label: str) -> str:
    """Return an option's label in a comparable form: a letter from A to Z, or else the label in upper case."""
    return option_letter(label) or label.strip().upper()


def choice_in(
    text: str, options: Options, mode: GradingMode, patterns: Sequence[str] = (), search: Search | None = None
) -> str | None:
    """Return the letter that a text chooses, or None.

    Try the regexes in `patterns` first, in order, with the function `search`. If none of them finds a choice, search
    as the grading mode requires.
    """
    for pattern in patterns:
        assert search is not None, "patterns need a search"
        captured = search(pattern, text)
        choice = None if captured is None else _captured_choice(captured, options)
        if choice is not None:
            return choice
    return _READERS[mode](text, options)


def _captured_choice(captured: str, options: Options) -> str | None:
    """Return the captured choice. A single letter does not have to be an option, because the row's regex decides."""
    plain = unwrapped(captured)
    label = plain.strip("()[].:, ")
    return (
        option_letter(label)
        or options.labelled(label)
        or options.with_text(captured)
        or options.allowed(_leading_letter(plain, options))
    )


def _boxed(text: str, read: Callable[[str], str | None]) -> str | None:
    """Return the choice that `read` finds in the final `\\boxed{}`. Return None if several final boxes disagree."""
    choices = {read(boxed) for boxed in last_boxes(text)}
    return choices.pop() if len(choices) == 1 else None


def _strict_boxed(text: str, options: Options) -> str | None:
    return _boxed(text, lambda boxed: _boxed_label(unwrapped(boxed), options))


def _lenient_boxed(text: str, options: Options) -> str | None:
    return _boxed(
        text,
        lambda boxed: (
            _boxed_label(unwrapped(boxed), options) or options.with_text(boxed) or options.mentioned_in(boxed)
        ),
    )


def _answer_colon(text: str, options: Options) -> str | None:
    line = _last_labelled(text, _ANSWER)
    if line is None:
        return None
    plain = unwrapped(line)
    return options.labelled(plain) or options.with_text(line) or options.allowed(_consistent_letter(plain, options))


def _answer_colon_markdown(text: str, options: Options) -> str | None:
    line = _last_labelled(text, _ANSWER_IN_MARKDOWN)
    if line is None:
        return None
    plain = unwrapped(_STRONG_MARKS.sub("", line))
    return (
        options.labelled(plain.strip("()[]"))
        or options.with_text(plain)
        or options.allowed(_single_choice(unwrapped(line), options))
    )


_READERS: Mapping[GradingMode, Callable[[str, Options], str | None]] = {
    "strict_single_letter_boxed": _strict_boxed,
    "lenient_boxed": _lenient_boxed,
    "lenient_answer_colon": _answer_colon,
    "lenient_answer_colon_md": _answer_colon_markdown,
}


def _boxed_label(plain: str, options: Options) -> str | None:
    return options.labelled(plain) or options.allowed(_leading_letter(plain, options))


def _leading_letter(plain: str, options: Options) -> str | None:
    """Return the letter of `B`, `b`, `B: …`, `B) …`, `B. …` or `B - …`, but None for `A) B) C)`.

    Before a dash only a capital counts, because `a - 1` is algebra.
    """
    first, rest = plain[:1], plain[1:].lstrip(_TATWEEL).lstrip()
    letter = option_letter(first)
    if letter is None or not rest:
        return letter
    is_label = rest[0] in ":)." or (rest[0] in _DASHES and not first.islower())
    if not is_label or options.goes_on(letter, rest):
        return None
    is_word = _PART_OF_A_WORD.match(plain[1:]) and options.after_text(letter, rest) is None
    return None if is_word else letter


def _consistent_letter(plain: str, options: Options) -> str | None:
    """Return the leading letter, but None for `A. London` if London is another option."""
    letter = _leading_letter(plain, options)
    return None if letter is None or options.has_text_of_another(letter, plain[1:]) else letter


def _single_choice(plain: str, options: Options) -> str | None:
    """Return the letter of `(B)`, `B) …` or `B because …`, but None for `A or B`, `A, B`, `A/B` or `(Both)`."""
    choice = _CHOICE_IN_MARKDOWN.match(plain)
    letter = option_letter(choice["letter"]) if choice else None
    if choice is None or letter is None:
        return None
    rest = _STRONG_MARKS.sub("", choice["rest"]).lstrip(_TATWEEL)
    if _is_another_choice(rest) or options.goes_on(letter, rest) or options.has_text_of_another(letter, rest):
        return None
    if choice["closing"] or not rest or options.after_text(letter, rest) is not None:
        return letter
    is_word = choice["letter"].islower() or unicodedata.category(rest[0])[0] in "LMN" or _PART_OF_A_WORD.match(rest)
    is_article = (
        choice["letter"] in _WORDS_OF_ONE_LETTER and _WORD_FOLLOWS.match(rest) and not _REASON_FOLLOWS.match(rest)
    )
    return None if is_word or is_article else letter


def _is_another_choice(rest: str) -> bool:
    """Return whether `rest` begins with another choice, as `or …` and `, B` do. `, a word` and `, I am` do not."""
    another = _ANOTHER_CHOICE.match(rest)
    if another is None or another["letter"] is None:
        return another is not None
    is_article = another["letter"] in ("a", "I") and another["word"] is not None
    return option_letter(another["letter"]) is not None and not is_article


def _last_labelled(text: str, label: re.Pattern[str]) -> str | None:
    """Return the rest of the line after the last match of `label`, or the next line if the rest is empty."""
    ends = [match.end() for match in label.finditer(text)]
    if not ends:
        return None
    after = text[ends[-1] :].lstrip(" \t\r\n*_`")
    return _LINE_END.split(after, maxsplit=1)[0]


def _next_item(text: str) -> tuple[bool, str]:
    """Return whether a text begins with a connector such as `or`, and the text after connector and punctuation."""
    between = _BETWEEN_CHOICES.match(text)
    return (between["connector"] is not None, text[between.end() :]) if between else (False, text)


def _after(text: str, start: str) -> str | None:
    """Return the rest of a text that begins with `start`, or None for other texts. The comparison ignores spaces."""
    place = 0
    for wanted in start:
        if wanted.isspace():
            continue
        while text[place : place + 1].isspace():
            place += 1
        if text[place : place + 1] != wanted:
            return None
        place += 1
    is_cut = start[-1:].isalnum() and text[place : place + 1].isalnum()
    return None if is_cut else text[place:]


def _mention(option: str, text: str) -> re.Match[str] | None:
    # Require boundaries around the option, because 15, -5, 0.5 and 5,000 do not mention the number 5.
    return re.search(rf"(?<![\w.−-])(?<!\d,){re.escape(option)}(?!\w)(?![.,]\d)", text)


def _is_affirmed(option: str, text: str) -> bool:
    """Return whether the first mention of an option in a text is neither negated nor part of a list or formula."""
    mention = _mention(option, text)
    if mention is None:
        return False
    before, after = text[: mention.start()], text[mention.end() :]
    is_negated = _NEGATION.search(before) or _REJECTION.match(after)
    is_listed = _LIST_BEFORE.search(before) or _LIST_AFTER.match(after)
    # Look for operators only next to symbols, because a dash or a slash next to a word is punctuation.
    is_symbol = not _WORD.search(option)
    is_in_formula = is_symbol and (_OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(after))
    return not (is_negated or is_listed or is_in_formula)
