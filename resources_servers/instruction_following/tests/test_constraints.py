"""Checks of constraints: results, ids, arguments, loose variants and running time."""

import pytest

from nemo_gym import InvalidTask
from resources_servers.instruction_following.constraints import (
    UNSUPPORTED,
    constraint,
    constraint_ids,
    followed,
    loose_variants,
)
from resources_servers.instruction_following.constraints.variants import LONGEST_TEXT
from resources_servers.instruction_following.tests.cases import CASES, NO, YES
from tests.pace import assert_linear


def test_constraint_holds_for_text():
    wrong = [
        (id_, arguments, text, holds, found)
        for id_, arguments, text, holds in CASES
        if (found := constraint(id_, arguments).holds_for(text)) is not holds
    ]
    assert wrong == []


def test_every_constraint_has_both_outcomes():
    seen = {(id_, holds) for id_, _, _, holds in CASES}
    assert seen == {(id_, holds) for id_ in constraint_ids() for holds in (YES, NO)}


INVISIBLE = ["", " \n\t ", "\u200b", "\u200b \u200d\n\ufeff\u00ad\u2060", "\u3164\u2800", "\ufe0f\u034f", "\x00\ue000"]


def test_invisible_answer_follows_no_constraint():
    wrong = []
    for id_ in constraint_ids():
        arguments = next(given for known, given, _, _ in CASES if known == id_)
        followed_by = [text for text in INVISIBLE if constraint(id_, arguments).holds_for(text)]
        if followed_by:
            wrong.append((id_, followed_by))
    assert wrong == []


@pytest.mark.parametrize(
    ("id_", "message"),
    [
        ("keyword:existence", "'keywords:existence'"),
        ("existence", "'keywords:existence'"),
        ("length_constraints:number_word", "'length_constraints:number_words'"),
        ("punctuation:no_commas", "'punctuation:no_comma'"),
        ("zzz", "No known id is similar"),
        ("", "No known id is similar"),
    ],
)
def test_unknown_constraint_suggests_similar_ids(id_, message):
    with pytest.raises(InvalidTask, match=message) as raised:
        constraint(id_)
    assert f"'{id_}'" in str(raised.value)


@pytest.mark.parametrize("id_", UNSUPPORTED)
def test_constraints_that_need_a_dictionary_are_unknown(id_):
    with pytest.raises(InvalidTask, match=f"'{id_}' is not supported: it needs a"):
        constraint(id_)


@pytest.mark.parametrize(
    ("id_", "arguments", "message"),
    [
        ("keywords:existence", {}, "keywords: Field required"),
        ("keywords:existence", None, "keywords: Field required"),
        ("keywords:existence", {"keywords": [""]}, "keywords.0: "),
        ("keywords:existence", {"keywords": "river"}, "keywords: "),
        ("keywords:frequency", {"keyword": "x", "frequency": 1, "relation": "about"}, "relation: "),
        ("length_constraints:number_words", {"num_words": 2.5}, "num_words: "),
        ("length_constraints:number_words", {"num_words": -1}, "num_words: "),
        ("punctuation:no_comma", {"keywords": ["x"]}, "keywords: Extra inputs"),
        ("language:response_language", {"language": "tlh"}, "language: "),
    ],
)
def test_invalid_arguments_are_reported(id_, arguments, message):
    with pytest.raises(InvalidTask, match=message) as raised:
        constraint(id_, arguments)
    assert f"'{id_}'" in str(raised.value)


def test_none_argument_counts_as_missing():
    assert constraint("punctuation:no_comma", {"keywords": None, "relation": None}).arguments == {}


def test_loose_check_ignores_outer_lines_and_asterisks():
    cases = [
        ("startend:quotation", '"So."', YES, YES),
        ("startend:quotation", 'Here you are:\n"So."', NO, YES),
        ("startend:quotation", '"So."\nAnything else?', NO, YES),
        ("startend:quotation", 'Here:\n"So."\nElse?', NO, YES),
        ("startend:quotation", 'Here:\n**"So."**\nElse?', NO, YES),
        ("startend:quotation", 'So:\nHere:\n"So."', NO, NO),
        ("detectable_format:json_format", "{}\n\nThat is it.", NO, YES),
        ("punctuation:no_comma", "Yes, sir!\nIt is so.", NO, YES),
        ("punctuation:no_comma", "", NO, NO),
        ("punctuation:no_comma", "a, b", NO, NO),
    ]
    wrong = []
    for id_, text, strict, loose in cases:
        asked = [constraint(id_)]
        found = followed(text, asked)
        if found != ([strict], [loose]):
            wrong.append((id_, text, strict, loose, found))
    assert wrong == []


def test_text_with_asterisks_has_eight_loose_variants():
    assert len(set(loose_variants("*a*\n*b*\n*c*\n*d*"))) == 8


def test_overlong_text_follows_no_constraint():
    found = followed("x" * (LONGEST_TEXT + 1), [constraint("punctuation:no_comma")])
    assert found == ([False], [False])


HOSTILE = [
    "x", " ", "\n", ".", ". ", "1. ", "\n1. ", "*", "* ",
    "[", "[a", "<<", "<< ", "(", '"', "'", "' ", "p. ", "- ", "-a",
    "a'", "Mr. ", "?!", "******", "*** ", "Section 1 ", "a a ", "the ",
    "é", "中", "\u0301", "🌊", "`", "[]", "P.S. ", "0,",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_makes_a_constraint_slow(piece):
    for id_ in constraint_ids():
        arguments = next(given for known, given, _, _ in CASES if known == id_)
        assert_linear(constraint(id_, arguments).holds_for, piece, 40_000)
