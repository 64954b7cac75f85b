"""Constraints on marks and parts that a text must have: titles, lists, sections, placeholders, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from nemo_gym.grading.constraints.texts import Count, Text, lines, sentence_ends, sentences

_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_HIGHLIGHT = re.compile(r"\*\*([^\n*]+)\*\*|\*([^\n*]+)\*")
_POSTSCRIPTS = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
_CONSTRAINED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")
_CLOSING = "\"'”’)]*_»"
_ASTERISKS = "******"
_NEAR = 40
"""Characters around the end of a sentence in which its emoji is looked for."""
_BEHIND_EMOJI = " .!?…\"'”’)*_\ufe0f\u200d"


def number_placeholders(text: str, *, num_placeholders: Count) -> bool:
    """At least so many placeholders such as `[address]`."""
    return len(_PLACEHOLDER.findall(text)) >= num_placeholders


def postscript(text: str, *, postscript_marker: Text) -> bool:
    """A postscript, begun by its marker."""
    pattern = _POSTSCRIPTS.get(postscript_marker.strip())
    lower = text.lower()
    return postscript_marker.strip().lower() in lower if pattern is None else pattern.search(lower) is not None


def number_bullet_lists(text: str, *, num_bullets: Count) -> bool:
    """Exactly so many bullet points: lines that begin with `*` or `-`, rules such as `---` left out."""
    return sum(map(_is_bullet, text.split("\n"))) == num_bullets


def constrained_response(text: str) -> bool:
    """One of three answers is there, word for word."""
    return any(answer in text for answer in _CONSTRAINED_ANSWERS)


def number_highlighted_sections(text: str, *, num_highlights: Count) -> bool:
    """At least so many highlights, `*such*` or `**such**`."""
    return sum(bool((match[1] or match[2]).strip()) for match in _HIGHLIGHT.finditer(text)) >= num_highlights


def multiple_sections(text: str, *, section_spliter: Text, num_sections: Count) -> bool:
    """At least so many sections, begun by the word and a number: `Section 1`."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?[0-9]+", text)) >= num_sections


def json_format(text: str) -> bool:
    """All of it is JSON, in a fence or not."""
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
    """A title in double angular brackets, `<<such>>`."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end and line[start:end].strip("<> \t"):
            return True
    return False


def two_responses(text: str) -> bool:
    """Two different answers with six asterisks between them."""
    parts = [part.strip() for part in text.split(_ASTERISKS)]
    if len(parts) > 2 and not parts[0]:
        del parts[0]
    if len(parts) > 2 and not parts[-1]:
        del parts[-1]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def one_of_options(text: str, *, options: list[Text] | Text) -> bool:
    """The answer is one of the options and nothing else; several in one text are kept apart by `/`, `,` or `or`."""
    given = re.split(r"/|,|\bor\b", options) if isinstance(options, str) else options
    return text.strip().strip(".").lower() in {option.strip().lower() for option in given}


def nested_parentheses(text: str) -> bool:
    """Brackets in brackets, five levels deep."""
    return _deepest(text, {")": "(", "]": "[", "}": "{"}) >= 5


def emoji_at_sentence_ends(text: str) -> bool:
    """Each sentence ends with an emoji, before its full stop or after it."""
    plain = text.rstrip()
    ends = [*sentence_ends(plain), len(plain)]
    befores = (plain[max(0, end - _NEAR) : end].rstrip(_BEHIND_EMOJI)[-1:] for end in ends)
    afters = (plain[end : end + _NEAR].lstrip()[:1] for end in ends)
    return all(_is_emoji(before) or _is_emoji(after) for before, after in zip(befores, afters, strict=True))


def item_list(text: str, *, sep: Text) -> bool:
    """Items, kept apart by this separator: at least two."""
    return sum(bool(item.strip()) for item in text.split(sep)) >= 2


def square_brackets(text: str) -> bool:
    """Each word stands in square brackets."""
    return all(len(part) > 2 and part[0] == "[" and part[-1] == "]" for part in text.split())


def bigram_wrapping(text: str) -> bool:
    """Each two words stand in double angular brackets: `<<I am>> <<at home>>`."""
    parts = text.split()
    pairs = zip(parts[::2], parts[1::2], strict=False)
    return len(parts) % 2 == 0 and all(
        first.startswith("<<") and len(first) > 2 and second.rstrip(".,!?").endswith(">>") for first, second in pairs
    )


def thesis(text: str) -> bool:
    """A part in italics, in HTML (`<i>` or `<em>`), and after it a text."""
    for opening, closing in (("<i>", "</i>"), ("<em>", "</em>")):
        _, _, rest = text.partition(opening)
        inside, end, after = rest.partition(closing)
        if end and inside.strip() and after.strip():
            return True
    return False


def sub_bullets(text: str) -> bool:
    """Bullet points with `*`, each with at least one beneath it that begins with `-`."""
    beneath: list[int] = []
    for line in filter(_is_bullet, lines(text)):
        if line.strip()[0] == "*":
            beneath.append(0)
        elif beneath:
            beneath[-1] += 1
    return bool(beneath) and all(beneath)


def sentences_then_bullets(text: str) -> bool:
    """At least two sentences that end with a full stop, then at least two bullet points with `*`, then nothing."""
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
    """`My Answer:`, `My Conclusion:` and `Future Outlook:` in this order, a text after each."""
    parts: list[str] = []
    rest = text
    for label in _TEMPLATE:
        before, found, rest = rest.partition(label)
        if not found:
            return False
        parts.append(before)
    return all(part.strip("* \t\r\n") for part in [*parts[1:], rest])


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
            # Only what is closed again has been nested.
            deepest = max(deepest, len(open_))
            open_.pop()
    return deepest


def _is_emoji(character: str) -> bool:
    return bool(character) and (0x1F000 <= ord(character) <= 0x1FAFF or 0x2600 <= ord(character) <= 0x27BF)


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
