"""Tests of the failure messages: each kind is printed once as it happens and counted at the end."""

from __future__ import annotations

import pytest

from nemo_gym.cli.failure_reporter import FailureReporter
from nemo_gym.rollouts.outcome import Outcome, Record
from nemo_gym.schemas.row import Row


def failure(cause: str, message: str, server: str = "games", task: int = 0) -> Record:
    row = {
        "_ng_failure_message": message,
        "_ng_failure_server": server,
        "_ng_task_index": task,
        "_ng_rollout_index": 1,
    }
    return Record(Outcome.FAILED, Row(row), cause=cause)


def report_of(*records: Record, **settings) -> tuple[list[str], list[str]]:
    """Return the messages printed at once and those at the end."""
    said: list[str] = []
    reporter = FailureReporter(said.append, **settings)
    for record in records:
        reporter.take(record)
    return said, list(reporter.lines())


def test_repeated_failure_is_printed_once_and_counted() -> None:
    said, at_the_end = report_of(
        failure("model_failed", "no answer after 3.2 s", task=7),
        *(failure("model_failed", f"no answer after {seconds} s") for seconds in range(5)),
    )
    assert said == ["model_failed, repeat 1 of task 7: no answer after 3.2 s"]
    assert at_the_end == ["  6 model_failed, the first: no answer after 3.2 s"]


def test_different_messages_are_counted_separately_by_frequency() -> None:
    said, at_the_end = report_of(
        failure("environment_failed", "verify raised KeyError: 'x'"),
        failure("environment_failed", "move raised ValueError: no"),
        failure("environment_failed", "move raised ValueError: no"),
        failure("environment_failed", "move raised ValueError: no", server="others"),
    )
    assert len(said) == 3
    assert at_the_end[0] == "  2 environment_failed, the first: move raised ValueError: no"
    assert len(at_the_end) == 3


@pytest.mark.parametrize(
    "messages",
    [
        [
            f"the judge 'judge_model' did not decide on yes or no. The end of its answer: {answer!r}"
            for answer in ("maybe", "it's 50: 'half'", '"quoted" and it\'s\n', "x" * 1000, "")
        ],
        [
            f"counter: /verify raised app.py:7: ValueError: could not convert string to float: {answer!r}; its log …"
            for answer in ("seven", "I don't know")
        ],
        [
            f"1 validation error: text Field required [type=missing, input_value={answer!r}, input_type=dict]"
            for answer in ({"a": "yes"}, {"b": ["no, never"]})
        ],
    ],
)
def test_quoted_answers_do_not_separate_kinds(messages: list[str]) -> None:
    said, at_the_end = report_of(*(failure("judge_failed", message) for message in messages))
    assert len(said) == len(at_the_end) == 1
    assert at_the_end == [f"  {len(messages)} judge_failed, the first: {messages[0]}"]


def test_other_numbers_do_not_separate_kinds() -> None:
    messages = [
        f"counter: /verify raised app.py:77: TimeoutError: 127.0.0.1:{port} gave {count} of 3 parts for {key}"
        for port, count, key in ((8001, 1, "0a1b2c3d4e"), (12, 2.5, "ffffeeee"))
    ]
    said, at_the_end = report_of(*(failure("environment_failed", message) for message in messages))
    assert len(said) == len(at_the_end) == 1


def test_source_lines_separate_kinds() -> None:
    messages = [f"/verify raised {place}: ValueError: no" for place in ("app.py:7", "app.py:70", "game.py:7")]
    said, _ = report_of(*(failure("environment_failed", message) for message in messages))
    assert len(said) == len(messages)


def test_quoted_names_separate_kinds() -> None:
    messages = ["the row lacks 'label'", "the row lacks 'words'", "app.py:7: KeyError: 'x'", "app.py:7: KeyError: 'y'"]
    said, _ = report_of(*(failure("invalid_task", message) for message in messages))
    assert len(said) == len(messages)


def test_further_kinds_are_only_counted() -> None:
    said, at_the_end = report_of(*(failure("timeout", f"no {chr(97 + n) * 3}") for n in range(26)))
    assert (len(said), at_the_end[-1]) == (20, "  6 of other kinds")


def test_message_is_one_line_without_secrets() -> None:
    record = failure("timeout", "the key\nhunter2 " + "x" * 1000)
    said, _ = report_of(record, mask=lambda text: text.replace("hunter2", "*"))
    assert said[0].startswith("timeout, repeat 1 of task 0: the key * xxx")
    assert (len(said[0]) < 450, said[0].count("\n")) == (True, 0)


def test_scored_rollouts_and_empty_messages_are_accepted() -> None:
    said, at_the_end = report_of(Record(Outcome.SCORED, Row({}), reward=1.0), failure("timeout", ""))
    assert said == ["timeout, repeat 1 of task 0: no message"]
    assert at_the_end == ["  1 timeout, the first: no message"]
