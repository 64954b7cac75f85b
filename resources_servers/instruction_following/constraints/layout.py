"""Constraints on the beginning and end of a text, and on the layout of its lines and sentences."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from resources_servers.instruction_following.constraints.texts import Text, bare_words, lines, sentences, words

_DOUBLE_QUOTE = re.compile(r'["“”]')


def end_checker(text: str, *, end_phrase: Text) -> bool:
    """Require the phrase at the end of the text. Case and quotes around the whole text are ignored."""
    return text.strip().strip('"').strip().lower().endswith(end_phrase.strip().lower())


def quotation(text: str) -> bool:
    """Require double quotes around the whole text."""
    plain = text.strip()
    return len(plain) > 1 and plain[0] == '"' and plain[-1] == '"'


def first_word_of_answer(text: str, *, first_word: Text) -> bool:
    found = words(text[:1_000])
    return bool(found) and found[0].lower() == first_word.strip().lower()


def first_word_of_sentences(text: str, *, first_word: Text) -> bool:
    return all(words(sentence)[0].lower() == first_word.strip().lower() for sentence in sentences(text))


def last_word_of_answer(text: str, *, last_word: Text) -> bool:
    found = words(text[-1_000:])
    return bool(found) and found[-1].lower() == last_word.strip().lower()


def last_word_of_sentences(text: str, *, last_word: Text) -> bool:
    return all(words(sentence)[-1].lower() == last_word.strip().lower() for sentence in sentences(text))


def last_first(text: str) -> bool:
    """Require each sentence to begin with the last word of the previous one."""
    found = [words(sentence.lower()) for sentence in sentences(text)]
    return all(before[-1] == after[0] for before, after in itertools.pairwise(found))


def paragraph_last_first(text: str) -> bool:
    """Require each line that contains words to begin and end with the same word."""
    found = [words(line.lower()) for line in lines(text)]
    return any(found) and all(inside[0] == inside[-1] for inside in found if inside)


def sentence_hyphens(text: str) -> bool:
    """Require hyphens between the sentences, without spaces around them."""
    parts = text.strip().split("-")
    return len(parts) > 1 and all(part and part == part.strip() for part in parts)


def word_per_line(text: str) -> bool:
    """Require at most one word per line. ASCII punctuation, such as the bullet `-`, is not a word, but a number is."""
    return all(len(bare_words(line)) <= 1 for line in lines(text))


def line_indent(text: str) -> bool:
    """Require each line to be indented further than the previous one."""
    margins = [len(line) - len(line.lstrip()) for line in lines(text)]
    return len(margins) > 1 and all(before < after for before, after in itertools.pairwise(margins))


def no_whitespace(text: str) -> bool:
    """Forbid spaces, tabs and line breaks."""
    return not any(character.isspace() for character in text.strip())


def nested_quotes(text: str) -> bool:
    """Require three levels of nested quotes, alternating between double and single."""
    open_: list[str] = []
    deepest = 0
    for place, character in enumerate(text):
        kind = '"' if character in '"“”«»' else "'" if character in "'‘’" else ""
        if not kind or (kind == "'" and _is_apostrophe(text, place)):
            continue
        if open_ and open_[-1] == kind:
            deepest = max(deepest, len(open_))
            open_.pop()
        else:
            open_.append(kind)
    return deepest >= 3


def explained_quotes(text: str) -> bool:
    """Require text between quotations, and words after the last quotation."""
    after = _DOUBLE_QUOTE.split(text)[2::2]
    return all(each.strip() for each in after) and (not after or any(map(str.isalpha, after[-1])))


def _is_apostrophe(text: str, place: int) -> bool:
    return text[place - 1 : place].isalnum() and text[place + 1 : place + 2].isalnum()


CHECKS: dict[str, Callable[..., bool]] = {
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
    "first_word:first_word_answer": first_word_of_answer,
    "first_word:first_word_sent": first_word_of_sentences,
    "last_word:last_word_answer": last_word_of_answer,
    "last_word:last_word_sent": last_word_of_sentences,
    "words:last_first": last_first,
    "words:paragraph_last_first": paragraph_last_first,
    "detectable_format:sentence_hyphens": sentence_hyphens,
    "format:newline": word_per_line,
    "format:line_indent": line_indent,
    "format:no_whitespace": no_whitespace,
    "format:quotes": nested_quotes,
    "format:quote_unquote": explained_quotes,
}
