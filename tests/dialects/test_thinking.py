"""Tests of splitting reasoning from a text and wrapping it again."""

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.dialects.thinking import split_thinking, wrapped_in_think_tags
from tests.each_case import each_case


@each_case(
    ("text", "reasoning", "rest"),
    [
        ("no tags at all", [], "no tags at all"),
        ("<think>why</think>\n\nso", ["why"], "\n\nso"),
        ("<think>\na\n</think>b<think>c</think>d", ["\na\n", "c"], "bd"),
        ("<think>\n\n</think>answer", [], "answer"),
        ("the template opened it</think>answer", ["the template opened it"], "answer"),
        ("opened\n</think>b<think>c</think>d", ["opened\n", "c"], "bd"),
        ("opened</think>b<think>cut off", ["opened"], "b<think>cut off"),
        ("<think>a</think>b</think>c", ["a"], "b</think>c"),
        ("<think>cut off here", ["cut off here"], ""),
        ("\n<think>cut off here", ["cut off here"], ""),
        ("a tag named <think> in a sentence", [], "a tag named <think> in a sentence"),
        ("", [], ""),
    ],
)
def test_reasoning_is_separated_from_answer(text, reasoning, rest):
    assert split_thinking(text) == (reasoning, rest)


plain = st.text(max_size=30).filter(lambda text: "think>" not in text)


@given(st.lists(plain.filter(str.strip), max_size=3), plain)
def test_wrapped_reasoning_is_split_again(reasoning, rest):
    assert split_thinking(wrapped_in_think_tags(reasoning) + rest) == (reasoning, rest)
