"""Constraints on how many words, sentences and paragraphs there are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from nemo_gym.grading.constraints.texts import Count, Relation, Text, compare, paragraphs, sentences, tokens, words

_DIVIDER = re.compile(r"\*\s?\*\s?\*")
_MARKS = ".,?!'\""


def number_words(text: str, *, num_words: Count, relation: Relation = "at least") -> bool:
    """So many words; the parts of `don't` count."""
    return compare(len(tokens(text)), relation, num_words)


def word_count_range(text: str, *, min_words: Count, max_words: Count) -> bool:
    """A number of words between these, both included."""
    return min_words <= len(words(text)) <= max_words


def unique_word_count(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """At least so many different words."""
    return len({word.lower() for word in words(text)}) >= N


def number_sentences(text: str, *, num_sentences: Count, relation: Relation = "at least") -> bool:
    """So many sentences."""
    return compare(len(sentences(text)), relation, num_sentences)


def number_paragraphs(text: str, *, num_paragraphs: Count) -> bool:
    """So many paragraphs with the divider `***` between them, and none of them empty."""
    return len(_divided(text)) == num_paragraphs and all(_divided(text))


def two_divided_paragraphs(text: str) -> bool:
    """Two paragraphs with the divider `***` between them."""
    return number_paragraphs(text, num_paragraphs=2)


def two_paragraphs(text: str) -> bool:
    """Two paragraphs with a blank line between them."""
    return len(paragraphs(text)) == 2


def nth_paragraph_first_word(text: str, *, num_paragraphs: Count, nth_paragraph: Count, first_word: Text) -> bool:
    """So many paragraphs with blank lines between them, of which one, counted from 1, begins with this word."""
    found = paragraphs(text)
    if len(found) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    word = found[nth_paragraph - 1].split(maxsplit=1)[0].lstrip("'\"")
    for place, character in enumerate(word):
        if character in _MARKS:
            word = word[:place]
            break
    return word.lower() == first_word.lower()


def counting_composition(text: str, *, n_sent: Count, n_words: Count) -> bool:
    """Three paragraphs with the divider `* * *` between them, each of so many sentences of so many words."""
    found = _divided(text)
    return len(found) == 3 and all(
        len(inside := sentences(each)) == n_sent and all(len(words(sentence)) == n_words for sentence in inside)
        for each in found
    )


def sentence_increment(text: str, *, small_n: Count) -> bool:
    """Each sentence has so many words more than the one before it."""
    counts = [len(words(sentence)) for sentence in sentences(text)]
    return all(after == before + small_n for before, after in itertools.pairwise(counts))


def _divided(text: str) -> list[str]:
    """The parts between dividers; before the first and after the last there may be nothing."""
    parts = [part.strip() for part in _DIVIDER.split(text)]
    if len(parts) > 1 and not parts[0]:
        del parts[0]
    if len(parts) > 1 and not parts[-1]:
        del parts[-1]
    return parts


CHECKS: dict[str, Callable[..., bool]] = {
    "length_constraints:number_words": number_words,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "paragraphs:paragraphs": two_divided_paragraphs,
    "paragraphs:paragraphs2": two_paragraphs,
    "count:word_count_range": word_count_range,
    "count:unique_word_count": unique_word_count,
    "count:counting_composition": counting_composition,
    "sentence:increment": sentence_increment,
}
