"""Constraints that require or forbid words and letters."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from resources_servers.instruction_following.constraints.texts import (
    Count,
    Relation,
    Text,
    bare_words,
    compare,
    count_word,
    has_word,
    occurrences,
    sentences,
    words,
)


def existence(text: str, *, keywords: list[Text]) -> bool:
    """Require every keyword, as a word or within a longer word."""
    return all(occurrences(keyword, text) for keyword in keywords)


def frequency(text: str, *, keyword: Text, frequency: Count, relation: Relation = "at least") -> bool:
    """Compare the number of the keyword's occurrences with `frequency`. Occurrences in longer words count, too."""
    return compare(occurrences(keyword.strip(), text), relation, frequency)


def frequency_by_default_exact(text: str, *, keyword: Text, frequency: Count, relation: Relation = "exactly") -> bool:
    """Check the same as `frequency`, but require the exact number by default."""
    return compare(occurrences(keyword.strip(), text), relation, frequency)


def forbidden_words(text: str, *, forbidden_words: list[Text]) -> bool:
    """Forbid the words, except within longer words."""
    return not any(has_word(word, text) for word in forbidden_words)


def letter_frequency(text: str, *, letter: Text, let_frequency: Count, let_relation: Relation = "at least") -> bool:
    """Compare the number of times that the letter occurs, in upper or lower case, with `let_frequency`."""
    return compare(occurrences(letter.strip() or letter, text), let_relation, let_frequency)


def letter_counting(text: str, *, N: Count, relation: Relation = "at least") -> bool:  # noqa: N803 - the data's name
    """Compare the total number of letters with `N`."""
    return compare(sum(character.isalpha() for character in text), relation, N)


def word_once(text: str, *, keyword: Text) -> bool:
    return count_word(keyword, text) == 1


def count_increment_word(text: str, *, keyword1: Text, keyword2: Text) -> bool:
    """Require the first keyword exactly once and the second exactly twice."""
    return count_word(keyword1, text) == 1 and count_word(keyword2, text) == 2


def keywords_multiple(
    text: str, *, keyword1: Text, keyword2: Text, keyword3: Text, keyword4: Text, keyword5: Text
) -> bool:
    """Require `keyword1` to `keyword5` exactly 1, 2, 3, 5 and 7 times. Occurrences in longer words count, too."""
    wanted = zip((keyword1, keyword2, keyword3, keyword4, keyword5), (1, 2, 3, 5, 7), strict=True)
    return all(occurrences(keyword.strip(), text) == count for keyword, count in wanted)


def second_and_second_to_last(text: str, *, keyword: Text) -> bool:
    """Require the keyword as the second and the second-to-last word."""
    found = words(text.lower())
    return len(found) > 1 and found[1] == found[-2] == keyword.strip().lower()


def exclude_word(text: str, *, keyword: Text, instruction: str | None = None) -> bool:
    """Forbid the keyword, although the question (`instruction`) contains it."""
    return not has_word(keyword, text)


def keyword_specific_position(text: str, *, keyword: Text, n: Count, m: Count) -> bool:
    """Require the keyword as the `m`-th word of the `n`-th sentence, both counted from 1."""
    found = sentences(text)
    if not 1 <= n <= len(found):
        return False
    inside = words(found[n - 1])
    return 1 <= m <= len(inside) and inside[m - 1].lower() == keyword.lower()


def keyword_in_sentence(text: str, *, word: Text, N: Count) -> bool:  # noqa: N803 - the data's name
    """Require the word, or a longer word that contains it, in the `N`-th sentence, counted from 1."""
    found = sentences(text)
    return 1 <= N <= len(found) and occurrences(word, found[N - 1]) > 0


def start_end(text: str) -> bool:
    """Require the last word to be the same as the first. No punctuation may follow the last word."""
    found = words(text)
    return len(found) > 1 and found[0].lower() == found[-1].lower() and text.rstrip().endswith(found[-1])


def palindrome(text: str) -> bool:
    """Require a palindrome of three letters or more."""
    return any(map(_is_palindrome, words(text)))


def ten_palindromes(text: str) -> bool:
    """Require ten palindromes of at least five letters or digits. The same palindrome may be repeated."""
    return sum(len(word) >= 5 and word == word[::-1] for word in bare_words(text.lower())) >= 10


def no_adjacent_consecutive(text: str) -> bool:
    """Forbid neighbouring words whose first letters are consecutive in the alphabet, such as `big cat`."""
    initials = [ord(word[0].lower()) for word in words(text)]
    return all(after != before + 1 for before, after in itertools.pairwise(initials))


def repeats(text: str, *, small_n: Count) -> bool:
    """Allow each word at most `small_n` times."""
    return max(Counter(bare_words(text.lower())).values(), default=0) <= small_n


def _is_palindrome(word: str) -> bool:
    plain = word.lower()
    return len(plain) >= 3 and plain.isalpha() and plain == plain[::-1]


CHECKS: dict[str, Callable[..., bool]] = {
    "keywords:existence": existence,
    "keywords:frequency": frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "keywords:word_once": word_once,
    "keywords:word_count_different_numbers": frequency_by_default_exact,
    "keywords:exclude_word_harder": exclude_word,
    "keywords:keyword_specific_position": keyword_specific_position,
    "words:keywords_specific_position": keyword_specific_position,
    "words:words_position": second_and_second_to_last,
    "keywords:start_end": start_end,
    "keywords:palindrome": palindrome,
    "keywords:no_adjacent_consecutive": no_adjacent_consecutive,
    "letters:letter_counting": letter_counting,
    "letters:letter_counting2": letter_frequency,
    "count:count_increment_word": count_increment_word,
    "count:keywords_multiple": keywords_multiple,
    "sentence:keyword": keyword_in_sentence,
    "words:palindrome": ten_palindromes,
    "words:repeats": repeats,
}
