"""Splitting texts into sentences, words and paragraphs."""

from resources_servers.instruction_following.constraints.texts import (
    compare,
    count_word,
    paragraphs,
    sentences,
    tokens,
    words,
)


def test_sentences_are_counted_like_a_reader_would():
    cases = [
        ("One. Two! Three? Four", 4),
        ("One.\nTwo.", 2),
        ("No full stop\n\nNo end", 1),
        ("Mr. A. B. Smith met Dr. Who, e.g. here.", 1),
        ("It costs 3.50. Good.", 2),
        ("1. First.\n2. Second.", 2),
        ("It was 1999. Then it was not.", 2),
        ('He said "No." She left.', 2),
        ('He said "no." and left.', 1),
        ("all is small. so is this.", 2),
        ("Wait... what? Oh... Yes.", 3),
        ("你好。再见！", 2),
        ("?! ... !", 0),
        ("", 0),
        ("See www.example.org for more.", 1),
        ("So am I. You are not.", 2),
    ]
    wrong = [(text, count, found) for text, count in cases if (found := len(sentences(text))) != count]
    assert wrong == []


def test_words_tokens_and_paragraphs():
    assert words("Don't well-known, O'Neil's x_1") == ["Don't", "well-known", "O'Neil's", "x_1"]
    assert tokens("Don't") == ["Don", "t"]
    assert paragraphs("\n\n a\nb\n \nc\n\n\n") == ["a\nb", "c"]


def test_words_are_not_counted_within_longer_words():
    cases = [("a", "a ab a", 2), ("c++", "c++ c+++", 2), ("a b", "a b a b", 2), ("x", "xx_x", 0), ("über", "Über!", 1)]
    wrong = [(word, text, count, found) for word, text, count in cases if (found := count_word(word, text)) != count]
    assert wrong == []


def test_relations():
    cases = [("at least", (2, 3)), ("less than", (1,)), ("at most", (1, 2)), ("more than", (3,)), ("exactly", (2,))]
    wrong = [
        (relation, kept, found)
        for relation, kept in cases
        if (found := tuple(count for count in (1, 2, 3) if compare(count, relation, 2))) != kept
    ]
    assert wrong == []
