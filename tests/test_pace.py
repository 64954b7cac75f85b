"""Growth is judged by two lengths of one text."""

import pytest

from tests.pace import assert_linear


def test_linear_work_passes():
    assert_linear(lambda text: [ord(character) for character in text], "ab", 200_000)


def test_quadratic_work_fails():
    def count(text):
        return sum(text.count("b", at) for at in range(len(text)))

    with pytest.raises(AssertionError, match=r"8 times as long a text takes .* times as long: 'a'"):
        assert_linear(count, "a", 10_000)
