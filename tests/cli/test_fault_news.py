"""The terminal hears of each distinct failure once as it happens, and of its count at the end."""

from __future__ import annotations

from nemo_gym.cli.fault_news import FaultNews
from nemo_gym.rollouts.outcome import Outcome, Record


def failure(cause: str, message: str, server: str = "games", task: int = 0) -> Record:
    row = {
        "_ng_failure_message": message,
        "_ng_failure_server": server,
        "_ng_task_index": task,
        "_ng_rollout_index": 1,
    }
    return Record(Outcome.FAILED, row, cause=cause)


def news_of(*records: Record, **settings) -> tuple[list[str], list[str]]:
    """What was said at once, and what at the end."""
    said: list[str] = []
    news = FaultNews(said.append, **settings)
    for record in records:
        news.take(record)
    return said, list(news.lines())


def test_a_failure_is_told_as_it_happens_and_counted_when_it_comes_again() -> None:
    said, at_the_end = news_of(
        failure("model_failed", "no answer after 3.2 s", task=7),
        *(failure("model_failed", f"no answer after {seconds} s") for seconds in range(5)),
    )
    assert said == ["model_failed, repeat 1 of task 7: no answer after 3.2 s"]
    assert at_the_end == ["  6 model_failed, the first: no answer after 3.2 s"]


def test_two_bugs_of_one_cause_are_two_and_the_frequent_one_comes_first() -> None:
    said, at_the_end = news_of(
        failure("environment_failed", "verify raised KeyError: 'x'"),
        failure("environment_failed", "move raised ValueError: no"),
        failure("environment_failed", "move raised ValueError: no"),
        failure("environment_failed", "move raised ValueError: no", server="others"),
    )
    assert len(said) == 3
    assert at_the_end[0] == "  2 environment_failed, the first: move raised ValueError: no"
    assert len(at_the_end) == 3


def test_what_fails_in_ever_new_ways_is_counted_and_no_longer_told() -> None:
    said, at_the_end = news_of(*(failure("timeout", f"no {chr(97 + n) * 3}") for n in range(26)))
    assert (len(said), at_the_end[-1]) == (20, "  6 of further kinds")


def test_a_message_is_one_line_without_secrets() -> None:
    record = failure("timeout", "the key\nhunter2 " + "x" * 1000)
    said, _ = news_of(record, mask=lambda text: text.replace("hunter2", "*"))
    assert said[0].startswith("timeout, repeat 1 of task 0: the key * xxx")
    assert (len(said[0]) < 450, said[0].count("\n")) == (True, 0)


def test_scored_rollouts_and_failures_without_a_word_are_no_trouble() -> None:
    said, at_the_end = news_of(Record(Outcome.SCORED, {}, reward=1.0), failure("timeout", ""))
    assert said == ["timeout, repeat 1 of task 0: no message"]
    assert at_the_end == ["  1 timeout, the first: no message"]
