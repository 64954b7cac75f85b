"""Finding the game actions that an answer names."""

import pytest

from nemo_gym.grading import actions_in
from tests.each_case import each_case

MOVES = ("Up", "Down", "Left", "Right", "0", "1", "pick up")


@each_case(
    ("text", "chosen"),
    [
        ("up", ["Up"]),
        ("I go UP, then left.", ["Up", "Left"]),
        ("Up is blocked.\nSo I go down.\n\nLet us see!", ["Down"]),
        ("<answer>Up || Right</answer> and not left", ["Up", "Right"]),
        ("<answer>Up</answer> no: <answer> down </answer>", ["Down"]),
        ("<answer>dance</answer>\nup", []),
        ("<answer>up", ["Up"]),
        ("</answer>up<answer>", ["Up"]),
        (r"Not up but \boxed{\text{left}}", ["Left"]),
        (r"<answer>up</answer> \boxed{left}", ["Up"]),
        ("<think>up</think>down", ["Down"]),
        ("<think>up", []),
        ("I pick up the parcel", ["pick up"]),
        ("upwards, cup, up-to-date", []),
        ("1", ["1"]),
        ("Action: 0.", ["0"]),
        ("1.5 10 -1 01", []),
        ("", []),
        (" \n ", []),
    ],
)
def test_actions_match_whole_words(text, chosen):
    assert actions_in(text, MOVES) == chosen


def test_no_names_match_nothing():
    assert actions_in("up", []) == []


@pytest.mark.parametrize("text", ["<answer>" * 40_000, "</answer>" * 40_000, r"\boxed{" * 40_000, "\n" * 300_000])
def test_unclosed_tags_are_searched_quickly(text):
    assert actions_in(text, MOVES) == []
