"""Constraints on the number of words, sentences and paragraphs."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable

from resources_servers.instruction_following.constraints.texts import (
    Count,
    Relation,
    Text,
    bare_words,
    compare,
    paragraphs,
    sentences,
    tokens,
    words,
)

_DIVIDER = re.compile(r"\*\s?\*\s?\*")
_MARKS = ".,?!'\""


def number_words(text: str, *, num_words: Count, relation: Relation = "at least") -> bool:
    """Compare the number of words with `num_words`. A word such as `don't` counts as two."""
    return compare(len(tokens(text)), relation, num_words)


def word_count_range(text: str, *, min_words: Count, max_words: Count) -> bool:
    """Require from `min_words` to `max_words` words. A word such as `don't` counts as two."""
    return min_words <= len(tokens(text)) <= max_words


def unique_word_count(text: str, *, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require at least `N` different words, split at whitespace: `and/or` is one word."""
    return len({bare for word in text.lower().split() if (bare := word.strip(string.punctuation))}) >= N


def number_sentences(text: str, *, num_sentences: Count, relation: Relation = "at least") -> bool:
    return compare(len(sentences(text)), relation, num_sentences)


def number_paragraphs(text: str, *, num_paragraphs: Count) -> bool:
    """Require exactly `num_paragraphs` non-empty paragraphs, separated by the divider `***`."""
    return len(_divided(text)) == num_paragraphs and all(_divided(text))


def two_divided_paragraphs(text: str) -> bool:
    """Require two non-empty paragraphs, separated by the divider `***`."""
    return number_paragraphs(text, num_paragraphs=2)


def two_paragraphs(text: str) -> bool:
    """Require two paragraphs, separated by a blank line."""
    return len(paragraphs(text)) == 2


def nth_paragraph_first_word(text: str, *, num_paragraphs: Count, nth_paragraph: Count, first_word: Text) -> bool:
    """Require `num_paragraphs` paragraphs between blank lines. The `nth_paragraph`-th must begin with `first_word`."""
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
    """Require three paragraphs, separated by `***`, each with `n_sent` sentences of `n_words` words."""
    found = _divided(text)
    return len(found) == 3 and all(
        len(inside := sentences(each)) == n_sent and all(len(words(sentence)) == n_words for sentence in inside)
        for each in found
    )


def sentence_increment(text: str, *, small_n: Count) -> bool:
    """Require each sentence to have `small_n` words more than the previous one."""
    counts = [len(bare_words(sentence)) for sentence in sentences(text)]
    return all(after == before + small_n for before, after in itertools.pairwise(counts))


def _divided(text: str) -> list[str]:
    """Split a text at dividers. An empty first or last part is removed."""
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
