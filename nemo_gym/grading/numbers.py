r"""Parse numbers in plain text or LaTeX, and compare them exactly.

Accepts `1,234.50`, `1 234.50`, `-3/4`, `1 1/2`, `\frac{3}{4}`, `2\frac{1}{2}`, `1.5 \times 10^{3}`, `6e-4`, `25\%`,
`\$18`, `3 million`, `negative 10`, `0.\overline{3}` and `0.333…`.
Any of them can be followed by a unit in words: `18 dollars`, `5\text{ km/h}`, `90^\circ`.
Words that negate a number or calculate with it are not accepted as a unit.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from nemo_gym.grading.number_words import NUMBER_WORDS, value_in_words
from nemo_gym.grading.units import is_usual, read_unit, same_unit

LONGEST = 200
"""The maximum number of characters. A longer text is not treated as a number."""
LARGEST_EXPONENT = 300
ROUNDED_DIGITS = 6
"""The minimum number of decimal places of a number that is treated as rounded."""
SIGNIFICANT_DIGITS = 4
"""The minimum number of significant digits of a number that is treated as rounded."""
_FACTORS = {
    name: Fraction(factor)
    for factor, names in {
        "1/10000": "basis point|bps",
        "1/1000": "thousandths|per mille|permille|‰",
        "1/100": "hundredths",
        "1/10": "tenths",
        "1/9": "ninths",
        "1/8": "eighths",
        "1/7": "sevenths",
        "1/6": "sixths",
        "1/5": "fifths",
        "12": "dozen|dutzend|douzaine|docena|dozzine",
        "100": "hundred|hundert|cento|ciento|сотен|百|सौ",
        "144": "gross",
        "1e3": "thousand|tausend|mille|mil|mila|тысяч|тысяча|тысячи|тыс|千|हज़ार|ألف",
        "1e4": "myriad|万|萬",
        "1e5": "lakh|lac|लाख",
        "1e6": "million|millionen|mio|mn|mln|millón|millones|milione|milioni|milhão|milhões|миллион|"
        "миллионов|млн|百万|مليون",
        "1e7": "crore|करोड़",
        "1e8": "億|亿",
        "1e9": "billion|bn|bln|milliarde|milliarden|mrd|milliard|miliardo|miliardi|миллиардов|млрд|مليار",
        "1e12": "trillion|tn|billionen",
        "1e15": "quadrillion",
    }.items()
    for name in names.split("|")
}
_SCALE_NAMES = "|".join(name.replace(" ", r"\s+") for name in sorted(_FACTORS, key=len, reverse=True))
SCALES = rf"(?:{_SCALE_NAMES})s?"
"""Words that multiply the number before them, as alternatives for a regex."""
_SCALE = re.compile(rf"\s*(?P<name>{_SCALE_NAMES})s?(?![^\W\d_])\.?(?:\s+of(?=\s))?", re.IGNORECASE)
CHANGES_VALUE = re.compile(
    r"(?<![\\A-Za-z])(?:not|no|nope|never|cannot|wrong|incorrect|false|invalid|plus|minus|negative|doubl(?:ed|ing)|tripl(?:ed|ing)|"
    r"halved|halving|half|factorial|(?:divided|multiplied)\s+by|(?<![A-Za-z] )(?:squared|cubed)|"
    rf"{SCALES}|(?<!\bin )(?<!\bfor )(?<!\bper )(?<!-){NUMBER_WORDS}(?!-(?!{NUMBER_WORDS})))(?![A-Za-z])|n['’]t\b",
    re.IGNORECASE,
)
"""Words that change or reject a number, such as "million" or "not". Excludes the "two" in `$5 for two tickets`."""

_SPACE = re.compile(r"\\[,;:!> ]|\\q?quad(?![A-Za-z])|~")
_DROPPED = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\{\}|\\[()\[\]]|\\(?=\$)")
_DELIMITED = re.compile(r"(?<!\\)\$([^$]+)(?<!\\)\$")
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_LETTER_UNITS = {"m": "meter", "g": "gram", "s": "second", "h": "hour", "l": "liter", "n": "newton", "j": "joule"}
"""Units of one letter. Outside of `\\text{}`, such a letter is a variable."""
_REPEATING = re.compile(
    r"(?<![\d.])(?P<whole>\d{0,30})\.(?P<first>\d{0,30}?)(?:\\(?:overline|bar|dot)\s*(?:\{(?P<over>\d{1,30})\}|(?P<digit>\d))"
    r"|(?P<block>\d{1,30}?)(?P=block){1,30}(?:\.\.\.|…|\\[lc]?dots(?![A-Za-z])))(?!\d)"
)
_SPANNED = re.compile(r"\\dot\s*\{?(\d)\}?(\d{0,30})\\dot\s*\{?(\d)\}?")
_BRACKETED = re.compile(r"(?<=\d\.)\((\d{1,30})\)(?!\d)")
_OVERLINED = re.compile("((?:\\d\u0305)+)")
_SPACE_BEFORE_POWER = re.compile(r"\s+(?=\^)")
_COMMA = re.compile(r"\{,\}")
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_POWER = re.compile(r"\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))")
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree|°")
_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SPACED_GROUPS = re.compile(r"(?<![\d.,])(?<!\d )\d{1,3}(?: \d{3})+(?![\d,]| ?[\d/])")
_IN_ASCII = {0x2212: "-", 0x2013: "-", 0xA0: " ", 0x2007: " ", 0x2009: " ", 0x202F: " "}
"""Minus signs and the spaces of fixed width that separate thousands."""
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)"
_NUMBER = re.compile(
    rf"(?:(?P<spoken>negative|minus)\s+)?(?P<before>[$€£¥₹]?)\s*(?P<sign>[-+]?)\s*(?P<currency>[$€£¥₹]?)\s*(?:(?P<whole>\d+)\s+(?P<part>\d+)\s*/\s*(?P<of>\d+)"
    rf"|(?P<over>{_DIGITS})\s*/\s*(?P<under>{_DIGITS})"
    rf"|(?P<decimal>{_DIGITS})(?:[eE](?P<exponent>[-+]?\d+))?)"
    r"\s*(?P<percent>%|per\s?cent(?![a-z]))?(?P<unit>[\s$€£¥₹¢/].*|)",
    re.DOTALL | re.IGNORECASE,
)
_UNIT = re.compile(r"degrees?|[^\W\d_]{2,}(?:[ /.'’-]+[^\W\d_]+)*(?:\^?\{?[23]\}?)?")
_NO_UNIT = re.compile(
    r"\b(?:a?r?c?(?:sin|cos|tan|cot|sec|csc)h?|pi|sqrt|ln|log|exp|mod|inf|infty|infinity|base|modulo|power|and|or|but|"
    r"except|over|(?:at\s+)?(?:least|most)|"
    r"is|are|was|were|equals?|halves|thirds?|quarters?|[mbt]n|[mb]ln|"
    r"oder|ou|oppure|eller|lub|albo|nebo|vagy|veya|или|或者|または)\b"
)
"""Words that cannot be part of a unit. They include "or" in several languages, because it offers alternatives."""

_RANGE = re.compile(r"to\b")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_IN_WORDS = r"(?:\\text\s*\{\s*)?([A-Za-z][A-Za-z -]{0,80})\}?"
_SPELLED = re.compile(
    r"(?<![\w.,^_/\\])(?<!\d )([-−]?\$?(?:\d[\d,]*(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\s*(?:\d\d|\{\d+\}\{\d+\}))(?:\\?%)?)"
    rf"([\s*]*(?:\\ )?(?:\\text\s*\{{\s*)?(?:[A-Za-z]+\s+){{0,2}})[(\[]\s*{_IN_WORDS}\s*[)\]]"
)
"""A number with its words in brackets, as in `10 (ten)` and `10 apples (ten)`."""
_TEXT_OPENED = re.compile(r"\\text\s*\{|[*\\]")
_SPELLED_FIRST = re.compile(rf"(?<![\w\\-]){_IN_WORDS}\s*[(\[]\s*(\d[\d,]*(?:\.\d+)?)\s*[)\]]")
"""Words with their number in brackets, as in `ten (10)`."""


class Number(NamedTuple):
    """A parsed number, with its unit and the number of decimal places that were written."""

    value: Fraction
    """The written value, which is 25 for `25%` and 3000000 for `3 million`."""
    is_percent: bool
    unit: str
    """The unit in lower case, or an empty string. It begins with a currency sign, if any."""
    decimals: int
    """The number of decimal places. It is negative if the last written digit has a higher place value than 1."""


def number_in(text: str) -> Number | None:
    """Parse a text that is one number, with an optional unit and currency sign. Return None for any other text."""
    if len(text) > LONGEST:
        return None
    parts = _NUMBER.fullmatch(_without_latex(without_spelled_value(text)))
    if parts is None:
        return None
    unit, factor = parts["unit"], Fraction(1)
    while scale := _SCALE.match(unit):
        unit, factor = unit[scale.end() :], factor * _FACTORS[re.sub(r"\s+", " ", scale["name"].lower())]
    unit = unit.strip(" .").lower()
    if unit and not _can_be_unit(unit):
        return None
    try:
        value = _value(parts) * factor
    except (ValueError, ZeroDivisionError):
        return None
    unit = f"{parts['before'] or parts['currency']} {unit}".strip()
    return Number(value, parts["percent"] is not None, unit, _decimals(parts) if factor == 1 else 0)


def without_spelled_value(text: str) -> str:
    """Return a text with each `10 (ten)` and `ten (10)` replaced by `10`. Words of another value are kept."""
    if "(" not in text and "[" not in text:
        return text
    text = _SPELLED.sub(
        lambda spelled: spelled[1] + spelled[2].replace("\\ ", " ") if _is_spelled(*spelled.groups()) else spelled[0],
        text,
    )
    return _SPELLED_FIRST.sub(_digits_of, text)


def _is_spelled(digits: str, unit: str, words: str) -> bool:
    """Return whether words have the value of a number, and its unit if they have one: `10 apples (ten apples)`."""
    number = number_in(f"{digits} {_TEXT_OPENED.sub(' ', unit)}")
    if number is None:
        return False
    value = value_in_words(words)
    if value is not None:
        return value == number.value
    rest = number.unit.lstrip("$ ") or ("percent" if number.is_percent else "dollars" if "$" in number.unit else "")
    return bool(rest) and words.lower().endswith(f" {rest}") and _is_spelled(digits, unit, words[: -len(rest) - 1])


def _digits_of(spelled: re.Match[str]) -> str:
    """Replace the longest group of words that spells the number after it."""
    words = spelled[1].split()
    for start in range(len(words)):
        value = value_in_words(" ".join(words[start:]))
        if value is not None:
            is_same = value == Fraction(spelled[2].replace(",", ""))
            return " ".join([*words[:start], spelled[2]]) if is_same else spelled[0]
    return spelled[0]


def _can_be_unit(text: str) -> bool:
    is_unit = _UNIT.fullmatch(text) or (len(text) > 1 and read_unit(text.removeprefix("/"))) or text in "$€£¥₹¢"
    return bool(is_unit) and not (_RANGE.match(text) or _NO_UNIT.search(text) or CHANGES_VALUE.search(text))


def same_number(expected: str, answer: str) -> bool | None:
    """Return whether two texts denote the same quantity, or None if one is not a number.

    Units are converted: `1 hour` equals `60 minutes`, but not `1 km`. A usual unit or a percent sign that only one
    text has is ignored: `18` equals `18 dollars`, and `25%` equals `25` and `0.25`. For an unusual unit
    of the answer, such as "maybe", return None.
    A number with at least six decimal places and four significant digits equals any number that rounds to it.
    """
    one, other = number_in(expected), number_in(answer)
    if one is None or other is None:
        return None
    if one.unit and other.unit:
        ratio = same_unit(other.unit, one.unit)
        if ratio is None:
            return False
        other = other._replace(value=other.value * ratio)
    elif not is_usual(other.unit):
        return None
    if one.is_percent != other.is_percent:
        percent, plain = (one, other) if one.is_percent else (other, one)
        return plain.value in (percent.value, percent.value / 100)
    return one.value == other.value or _rounds_to(one, other) or _rounds_to(other, one)


def has_asked_unit(number: Number, expected: Number, question: str) -> bool:
    """Return whether the words of a number's unit are all in the expected number's unit or in the question.

    Only sentences that end in a question mark count as the question. So `6 crates` answers "How many crates are
    there?", but `6 twice`, `6 aut septem` and `6%` do not.
    """
    asked = " ".join(sentence for sentence in _SENTENCE_END.split(question) if sentence.endswith("?"))
    return _unit_words(number) <= _unit_words(expected) | _words(asked)


def _unit_words(number: Number) -> set[str]:
    return _words(number.unit) | ({"percent"} if number.is_percent else set())


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w+", text.lower())}


def _rounds_to(exact: Number, rounded: Number) -> bool:
    if rounded.decimals < ROUNDED_DIGITS:
        return False
    digits = len(str(abs(int(rounded.value * 10**rounded.decimals))))
    return digits >= SIGNIFICANT_DIGITS and round(exact.value, rounded.decimals) == rounded.value


def _without_latex(text: str) -> str:
    """Replace LaTeX notation of numbers with plain text."""
    plain = _TEXT.sub(_text_inside, _DELIMITED.sub(r"\1", _COMMA.sub(",", exact_decimals(text))))
    plain = _SPACE_BEFORE_POWER.sub("", plain).translate(_IN_ASCII)
    plain = _DEGREE.sub(" degrees ", _FRACTION.sub(_as_division, plain))
    plain = _POWER.sub(lambda power: f"e{power[1] or power[2]}", plain).replace("\\%", "%")
    plain = _SPACE.sub("", _DROPPED.sub("", plain))
    plain = _SPACED_GROUPS.sub(lambda group: group[0].replace(" ", ""), plain)
    return _GROUPS.sub(lambda group: group[0].replace(",", ""), plain).strip().removesuffix(".").strip()


def _text_inside(command: re.Match[str]) -> str:
    inside = command[1].replace("~", " ")
    return f" {_LETTER_UNITS.get(inside.strip().lower(), inside)} "


def exact_decimals(text: str) -> str:
    r"""Replace each repeating decimal, such as `0.1\overline{6}` or `0.333…`, by a fraction in LaTeX."""
    text = _OVERLINED.sub(lambda digits: rf"\overline{{{digits[1].replace(chr(0x305), '')}}}", text)
    text = _BRACKETED.sub(r"\\overline{\1}", text)
    return _REPEATING.sub(_as_fraction, _SPANNED.sub(r"\\overline{\1\2\3}", text))


def _as_fraction(parts: re.Match[str]) -> str:
    block = parts["over"] or parts["digit"] or parts["block"]
    shift = 10 ** len(parts["first"])
    value = Fraction(int((parts["whole"] or "0") + parts["first"]), shift)
    value += Fraction(int(block), shift * (10 ** len(block) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _as_division(fraction: re.Match[str]) -> str:
    return f" {fraction[1] or fraction[2]}/{fraction[3] or fraction[4]} "


def _value(parts: re.Match[str]) -> Fraction:
    if parts["whole"]:
        value = int(parts["whole"]) + Fraction(int(parts["part"]), int(parts["of"]))
    elif parts["over"]:
        value = Fraction(parts["over"]) / Fraction(parts["under"])
    else:
        exponent = int(parts["exponent"] or 0)
        if abs(exponent) > LARGEST_EXPONENT:
            raise ValueError("the power of ten is too large")
        value = Fraction(parts["decimal"]) * Fraction(10) ** exponent
    return -value if (parts["sign"] == "-") != bool(parts["spoken"]) else value


def _decimals(parts: re.Match[str]) -> int:
    written = len((parts["decimal"] or "").partition(".")[2])
    return written - int(parts["exponent"] or 0)
