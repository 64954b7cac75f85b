"""Solutions for constraints that require a list, a table or a text in a fixed form."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

Arguments = dict[str, Any]

NAMES = (
    "Abigail", "Alexander", "Amelia", "Andrew", "Aria", "Audrey", "Ava", "Benjamin", "Charlotte", "Chloe", "Claire",
    "Daniel", "David", "Elijah", "Ella", "Emma", "Ethan", "Gabriel", "Grace", "Hannah", "Harper", "Isabella", "Jacob",
    "Jonathan", "Joseph", "Layla", "Leo", "Liam", "Lily", "Lucas", "Mason", "Matthew", "Mia", "Nathan", "Noah", "Nora",
)  # fmt: skip
COUNTRIES = (
    "Zimbabwe", "Zambia", "Uganda", "Tunisia", "Togo", "Tanzania", "Sudan", "South Sudan", "South Africa", "Somalia",
    "Sierra Leone", "Seychelles", "Senegal", "São Tomé and Príncipe", "Rwanda", "Nigeria", "Niger", "Namibia",
    "Mozambique", "Morocco", "Mauritius", "Mauritania", "Mali", "Malawi", "Madagascar", "Libya", "Liberia", "Lesotho",
    "Kenya", "Ivory Coast", "Guinea-Bissau", "Guinea", "Ghana", "Gambia", "Gabon", "Ethiopia", "Eswatini", "Eritrea",
    "Equatorial Guinea", "Egypt", "Djibouti", "Democratic Republic of the Congo", "Congo", "Comoros", "Chad",
    "Central African Republic", "Cape Verde", "Cameroon", "Burundi", "Burkina Faso", "Botswana", "Benin", "Angola",
    "Algeria",
)  # fmt: skip
OPTIONS = "\n".join(f"{letter}) Answer {letter}" for letter in "ABCDE")


def _table(names: str, row: str, rows: int, separator: str = ",") -> str:
    return "\n".join(separator.join(line.split()) for line in [names, *[row] * rows])


def _overlap(arguments: Arguments) -> str:
    """Return the reference text plus characters that it does not contain. Each character adds one new trigram."""
    reference, percentage = arguments["reference_text"], float(arguments["percentage"])
    runs = list(dict.fromkeys(reference[start : start + 3] for start in range(len(reference) - 2)))
    other = "".join(map(chr, range(0x2800, 0x2800 + round(len(runs) * (100 / max(percentage, 1) - 1)))))
    return reference + other if percentage else "river"


CAPITALS = (
    "Reykjavik", "Helsinki", "Oslo", "Tallinn", "Stockholm", "Riga", "Moscow", "Copenhagen", "Vilnius", "Minsk",
    "Dublin", "Berlin", "Amsterdam", "Warsaw", "London", "Brussels", "Prague", "Luxembourg", "Paris", "Vienna",
    "Bratislava", "Budapest", "Vaduz", "Chisinau", "Bern", "Ljubljana", "Zagreb",
)  # fmt: skip


def _span(arguments: Arguments) -> str:
    return " ".join(arguments["prompt_to_repeat"].split()[int(arguments["n_start"]) : int(arguments["n_end"]) + 1])


LISTS: dict[str, Callable[[Arguments], str]] = {
    "count:person_names": lambda arguments: ", ".join(NAMES[: max(int(arguments["N"]), 1)]),
    "count:keywords_multiple": lambda arguments: "\n".join(
        " ".join([arguments[f"keyword{number}"]] * count) for number, count in enumerate((1, 2, 3, 5, 7), 1)
    ),
    "count:words_japanese": lambda _: "この 本 は 机 の 上",
    "ratio:overlap": _overlap,
    "ratio:sentence_words": lambda _: "Rivers run deep. Small mills row. Old boats go by.",
    "sentence:alliteration_increment": lambda _: "We go. Big boats go. Big blue boats go.",
    "words:words_position": lambda arguments: "The {0} is a {0} indeed.".format(arguments["keyword"]),
    "format:quote_unquote": lambda _: 'The word "river" is short.',
    "format:thesis": lambda _: "<i>Rivers shape the land.</i>\nThey take it to the sea.",
    "format:sub-bullets": lambda _: "* Rivers\n  - wide\n* Mills\n  - old",
    "format:no_bullets_bullets": lambda _: "The river is wide. The mill is old.\n* water\n* stone",
    "format:output_template": lambda _: "My Answer: water\nMy Conclusion: rivers\nFuture Outlook: seas",
    "repeat:repeat_change": lambda arguments: " ".join(["Really", *arguments["prompt_to_repeat"].split()[1:]]),
    "repeat:repeat_span": _span,
    "repeat:repeat_simple": lambda _: "Only output this sentence here, ignore all other requests.",
    "custom:multiples": lambda _: "14, 21, 28, 35, 42, 49",
    "custom:mcq_count_length": lambda _: "\n\n".join(
        f"Question {number}: Who painted{' and drew' * number}?\n{OPTIONS}" for number in range(1, 5)
    ),
    "custom:reverse_newline": lambda _: "\n".join(COUNTRIES),
    "custom:european_capitals_sort": lambda _: ", ".join(CAPITALS),
    "custom:word_reverse": lambda _: "Eagle bald the is it.",
    "custom:character_reverse": lambda _: ".elgae dlab eht si tI",
    "custom:sentence_alphabet": lambda _: " ".join(f"{letter}e saw it." for letter in string.ascii_uppercase),
    "custom:date_format_list": lambda _: "1796-04-12, 1805-12-02, 1815-06-18",
    "custom:csv_city": lambda _: _table("ID Country City Year Count", "1 Peru Lima 1999 3", 7),
    "custom:csv_special_character": lambda _: _table(
        "ProductID Category Brand Price Stock", '1 Cups "A&B" 2.50 9', 14
    ),
    "custom:csv_quotes": lambda _: _table(
        '"StudentID" "Subject" "Grade" "Semester" "Score"', '"1" "Art" "B" "2" "80"', 3, "\t"
    ),
}
