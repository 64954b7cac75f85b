"""Searching with regular expressions from a dataset."""

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from nemo_gym.grading import PatternFailed, PatternSearch
from tests.conftest import PATIENCE_S
from tests.each_case import each_case
from tests.waiting import until

CATASTROPHIC = "(a+)+$"
ENDLESS_FOR_IT = "a" * 60 + "!"
SEARCHING_S = 2.0
"""Seconds of computing that only a search takes, and no start of a worker."""


@pytest.fixture
def search():
    search = PatternSearch(time_limit_s=PATIENCE_S)
    yield search
    search.close()


@each_case(
    ("pattern", "text", "found"),
    [
        (r"answer: (\w)", "Answer: a ... ANSWER: b", "b"),
        (r"[A-D]\b", "a or B", "B"),
        (r"is (A)|takes (\w)", "it takes b", "b"),
        (r"x(\w)?", "xB x", "B"),
        (r"(?s)<a>(.*?)</a>", "<a>one\ntwo</a>", "one\ntwo"),
        (r"الجواب: (\w)", "الجواب: ب", "ب"),
        (r"answer: (\w)", "no such thing", None),
        (r"x(\w)?", "x", None),
        (r"a", "", None),
        (r"a(.)", "a\ud800", "\ud800"),
    ],
)
def test_last_match_with_a_capture_wins(search, pattern, text, found):
    assert search.last_match(pattern, text) == found


@each_case("pattern", ["(a", "a{2,1}", "*", r"\p{L}", "a{99999999999}", "(?P<x>a)(?P<x>b)"])
def test_invalid_pattern_is_reported(search, pattern):
    with pytest.raises(PatternFailed, match="is not a regular expression") as failure:
        search.last_match(pattern, "a")
    assert repr(pattern) in str(failure.value)


def test_search_works_after_a_timeout():
    # Longer than a busy machine needs for the second search.
    search = PatternSearch(time_limit_s=4.0)
    with pytest.raises(PatternFailed, match="did not finish within 4 s"):
        search.last_match(CATASTROPHIC, ENDLESS_FOR_IT)
    assert search.last_match(r"(b)", "ab") == "b"
    search.close()


def test_only_the_end_of_a_text_is_searched():
    search = PatternSearch(longest_text=100)
    assert search.last_match("needle", "needle" + " " * 94) == "needle"
    assert search.last_match("needle", "needle" + " " * 95) is None
    search.close()


def test_closed_search_can_be_reused(search):
    search.close()
    assert search.last_match("a", "a") == "a"
    search.close()
    search.close()
    assert search.last_match("b", "b") == "b"


def test_threads_share_one_search(search):
    texts = [f"answer: {number}" for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: search.last_match(r"answer: (\d+)", text), texts))
    assert found == [str(number) for number in range(200)]


def test_endless_search_does_not_delay_others(search):
    with ThreadPoolExecutor(1) as threads:
        endless = threads.submit(search.last_match, CATASTROPHIC, ENDLESS_FOR_IT)
        found = [search.last_match(r"answer: (\d+)", f"answer: {number}") for number in range(50)]
        assert not endless.done()
        assert found == [str(number) for number in range(50)]
        # If the pool closes before the search begins, the pattern is not to blame.
        until(lambda: max(psutil.Process(pid).cpu_times().user for pid in search._workers.pids()) > SEARCHING_S)
        search.close()
        assert isinstance(endless.exception(), PatternFailed)
