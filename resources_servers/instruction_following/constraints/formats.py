"""Constraints on the format of a text: titles, lists, sections, placeholders and JSON."""

from __future__ import annotations

import re
import string
from collections.abc import Callable

import orjson

from resources_servers.instruction_following.constraints.texts import Count, Text, lines, sentence_ends, sentences

_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_HIGHLIGHT = re.compile(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*")
_POSTSCRIPTS = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
_CONSTRAINED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")
_CLOSING = "\"'”’)]*_»"
_ASTERISKS = "******"
_EDGES = string.punctuation + string.whitespace
_LETTERED = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_NEAR = 40
"""The number of characters that are searched for an emoji before and after the end of a sentence."""
_AFTER_EMOJI = " .!?…\"'”’)*_"
_EMOJI = (
    r"(?:[\U0001f000-\U0001faff\u2600-\u27bf\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25aa\u25ab\u25b6\u25c0"
    r"\u25fb-\u25fe\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55]"
    r"|[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u24c2\u3030\u303d\u3297\u3299]\ufe0f"
    r"|[0-9#*]\ufe0f?\u20e3)"
)
"""A regex for the first characters of an emoji. Some characters, such as ™, are emoji only before U+FE0F."""
_EMOJI_BEGINS = re.compile(_EMOJI)
_EMOJI_ENDS = re.compile(rf"{_EMOJI}[\ufe0f\u200d\U000e0020-\U000e007f]*\Z")


def number_placeholders(text: str, *, num_placeholders: Count) -> bool:
    """Require at least `num_placeholders` placeholders, such as `[address]`."""
    return len(_PLACEHOLDER.findall(text)) >= num_placeholders


def postscript(text: str, *, postscript_marker: Text) -> bool:
    pattern = _POSTSCRIPTS.get(postscript_marker.strip())
    lower = text.lower()
    return postscript_marker.strip().lower() in lower if pattern is None else pattern.search(lower) is not None


def number_bullet_lists(text: str, *, num_bullets: Count) -> bool:
    """Require exactly `num_bullets` lines that begin with `*` or `-`. Rules such as `---` do not count."""
    return sum(map(_is_bullet, text.split("\n"))) == num_bullets


def constrained_response(text: str) -> bool:
    """Require one of the sentences in `_CONSTRAINED_ANSWERS`, word for word."""
    return any(answer in text for answer in _CONSTRAINED_ANSWERS)


def number_highlighted_sections(text: str, *, num_highlights: Count) -> bool:
    """Require at least `num_highlights` highlights, `*like this*` or `**like this**`."""
    return sum(bool((match[1] or match[2]).strip()) for match in _HIGHLIGHT.finditer(text)) >= num_highlights


def multiple_sections(text: str, *, section_spliter: Text, num_sections: Count) -> bool:
    """Require at least `num_sections` sections that start with `section_spliter` and a number, such as `Section 1`."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?[0-9]+", text)) >= num_sections


def json_format(text: str) -> bool:
    """Require JSON and nothing else, with or without a code fence."""
    plain = text.strip()
    for opening in ("```json", "```Json", "```JSON", "```"):
        if plain.startswith(opening):
            plain = plain.removeprefix(opening)
            break
    try:
        orjson.loads(plain.removesuffix("```").strip())
    except orjson.JSONDecodeError:
        return False
    return True


def title(text: str) -> bool:
    """Require a title in double angle brackets, `<<like this>>`."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end and line[start:end].strip("<> \t"):
            return True
    return False


def two_responses(text: str) -> bool:
    """Require two different answers, separated by six asterisks."""
    parts = [part.strip() for part in text.split(_ASTERISKS)]
    if len(parts) > 2 and not parts[0]:
        del parts[0]
    if len(parts) > 2 and not parts[-1]:
        del parts[-1]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def one_of_options(text: str, *, options: list[Text] | Text) -> bool:
    """Require one of the options and nothing else.

    Options in one string are separated by `/`, by `or` if there is no `/`, or by commas if there is neither. Options
    that are only letters, such as `a)`, must match exactly.
    """
    given = _split_options(options) if isinstance(options, str) else options
    if _LETTERED.match("".join(given)):
        return text.strip() in {option.strip() for option in given}
    return text.strip(_EDGES).lower() in {option.strip(_EDGES).lower() for option in given}


def nested_parentheses(text: str) -> bool:
    """Require brackets nested five levels deep."""
    return _deepest(text, {")": "(", "]": "[", "}": "{"}) >= 5


def emoji_at_sentence_ends(text: str) -> bool:
    """Require an emoji at the end of each sentence, before or after its full stop."""
    plain = text.rstrip()
    ends = [*sentence_ends(plain), len(plain)]
    return all(
        _EMOJI_ENDS.search(plain[max(0, end - _NEAR) : end].rstrip(_AFTER_EMOJI))
        or _EMOJI_BEGINS.match(plain[end : end + _NEAR].lstrip())
        for end in ends
    )


def item_list(text: str, *, sep: Text) -> bool:
    """Require the mark `sep` at least twice, in place of bullet points."""
    return text.count(sep) >= 2


def square_brackets(text: str) -> bool:
    """Require square brackets around each word."""
    return all(len(part) > 2 and part[0] == "[" and part[-1] == "]" for part in text.split())


def bigram_wrapping(text: str) -> bool:
    """Require double angle brackets around each pair of words: `<<I am>> <<at home>>`."""
    parts = text.split()
    pairs = zip(parts[::2], parts[1::2], strict=False)
    return len(parts) % 2 == 0 and all(
        first.startswith("<<") and len(first) > 2 and second.rstrip(".,!?").endswith(">>") for first, second in pairs
    )


def thesis(text: str) -> bool:
    """Require HTML italics (`<i>` or `<em>`) with more text after them."""
    for opening, closing in (("<i>", "</i>"), ("<em>", "</em>")):
        _, _, rest = text.partition(opening)
        inside, end, after = rest.partition(closing)
        if end and inside.strip() and after.strip():
            return True
    return False


def sub_bullets(text: str) -> bool:
    """Require bullet points with `*`, each with at least one sub-bullet with `-`."""
    nested: list[int] = []
    for line in filter(_is_bullet, lines(text)):
        if line.strip()[0] == "*":
            nested.append(0)
        elif nested:
            nested[-1] += 1
    return bool(nested) and all(nested)


def sentences_then_bullets(text: str) -> bool:
    """Require two or more sentences with full stops, then two or more bullet points with `*`, then nothing."""
    found = lines(text)
    are_bullets = [_is_bullet(line) and line.strip()[0] == "*" for line in found]
    first = are_bullets.index(True) if True in are_bullets else len(found)
    said = sentences("\n".join(found[:first]))
    return (
        sum(sentence.rstrip(_CLOSING).endswith(".") for sentence in said) >= 2
        and len(found) - first >= 2
        and all(are_bullets[first:])
    )


def output_template(text: str) -> bool:
    """Require `My Answer:`, `My Conclusion:` and `Future Outlook:` in this order, each followed by text."""
    parts: list[str] = []
    rest = text
    for label in _TEMPLATE:
        before, found, rest = rest.partition(label)
        if not found:
            return False
        parts.append(before)
    return all(part.strip("* \t\r\n") for part in [*parts[1:], rest])


def _split_options(options: str) -> list[str]:
    separator = next((each for each in (r"/", r"\bor\b") if re.search(each, options)), ",")
    return re.split(separator, options)


def _is_bullet(line: str) -> bool:
    plain = line.strip()
    if plain.startswith("*"):
        return len(plain) > 1 and plain[1] != "*"
    return plain.startswith("-") and bool(plain.strip("- "))


def _deepest(text: str, opening_of: dict[str, str]) -> int:
    open_: list[str] = []
    deepest = 0
    for character in text:
        if character in opening_of.values():
            open_.append(character)
        elif character in opening_of and open_ and open_[-1] == opening_of[character]:
            # Measure the depth at closing brackets, so that brackets that are never closed do not count.
            deepest = max(deepest, len(open_))
            open_.pop()
        elif character in opening_of:
            open_.clear()
    return deepest


CHECKS: dict[str, Callable[..., bool]] = {
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "detectable_format:square_brackets": square_brackets,
    "detectable_format:bigram_wrapping": bigram_wrapping,
    "combination:two_responses": two_responses,
    "format:options": one_of_options,
    "format:parentheses": nested_parentheses,
    "format:emoji": emoji_at_sentence_ends,
    "format:list": item_list,
    "format:thesis": thesis,
    "format:sub-bullets": sub_bullets,
    "format:no_bullets_bullets": sentences_then_bullets,
    "format:output_template": output_template,
}
