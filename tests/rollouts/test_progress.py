"""Progress of a running collection: a progress bar in a terminal, otherwise one line per 10 %."""

from __future__ import annotations

import io
import re
import time

import pytest

from nemo_gym.rollouts.outcome import Outcome, Record, Summary
from nemo_gym.rollouts.progress import Progress
from nemo_gym.schemas.row import Row
from tests.conftest import PATIENCE_S
from tests.waiting import until

GOOD = Record(Outcome.SCORED, Row({}), reward=0.75)
BAD = Record(Outcome.FAILED, Row({}), cause="agent_failed")
LOST = Record(Outcome.UNRESOLVED, Row({}))


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def show(stream, records, planned):
    summary = Summary(planned=planned)
    summary.begin()
    with Progress(summary, stream) as progress:
        for record in records:
            summary.count(record)
            progress.advance(record, summary)
    return stream.getvalue()


@pytest.mark.parametrize("planned", [1, 3, 10, 11, 99, 1000, 12345])
def test_plain_stream_gets_at_most_11_lines(planned):
    lines = show(io.StringIO(), [GOOD] * planned, planned).splitlines()
    assert 1 <= len(lines) <= 11
    assert lines[-1].startswith(f"{planned}/{planned} rollouts (100 %), ")
    assert lines[-1].endswith("0:00 left")


def test_line_shows_rate_mean_reward_and_failures():
    lines = show(io.StringIO(), [GOOD, BAD, LOST, GOOD, BAD], 10).splitlines()
    assert re.fullmatch(
        r"5/10 rollouts \(50 %\), [\d,.]+/s, mean reward 0\.750, 2 failed, \d+:\d\d left", lines[-1]
    ), lines[-1]


def test_mean_is_a_dash_without_rewards():
    assert "mean reward –, 1 failed" in show(io.StringIO(), [BAD], 1)


def test_earlier_results_affect_mean_but_not_rate():
    summary = Summary(planned=1000, reward_sum=900 * 0.25, rewards=900)
    stream = io.StringIO()
    with Progress(summary, stream) as progress:
        summary.scored = summary.kept = 900
        summary.begin()
        time.sleep(0.1)
        for _ in range(10):
            summary.count(GOOD)
            progress.advance(GOOD, summary)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("910/1000 rollouts (91 %), ")
    assert 0 < rate_in(line) <= 100
    assert "mean reward 0.255" in line


def test_rate_does_not_count_time_before_first_rollout():
    summary, stream = Summary(planned=20), io.StringIO()
    with Progress(summary, stream) as progress:
        summary.scored = summary.kept = 10
        time.sleep(0.5)
        began_at = time.monotonic()
        summary.begin()
        summary.count(GOOD)
        progress.advance(GOOD, summary)
        took_s = time.monotonic() - began_at
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("11/20 rollouts (55 %), ")
    assert rate_in(line) >= round(1 / took_s, 1)


def rate_in(line):
    return float(re.search(r"([\d.,]+)/s", line)[1].replace(",", ""))


def test_terminal_shows_a_bar_with_the_same_words():
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", show(Terminal(), [GOOD, BAD, GOOD], 4))
    last = shown.strip().splitlines()[-1]
    assert last.startswith("rollouts ━")
    for words in ("3/4", "mean reward 0.750", "1 failed", "0:00 left", "/s"):
        assert words in last


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_bar_fits_into_one_terminal_line(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "\n", show(Terminal(), [GOOD] * 99_999, 100_000))
    lines = [line.strip("\r\n") for line in shown.splitlines() if "rollouts" in line]
    assert lines
    assert max(map(len, lines)) <= columns


def last_frame(stream):
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue()).strip().splitlines()[-1]


def test_bar_catches_up_after_a_burst():
    summary, stream = Summary(planned=8), Terminal()
    summary.begin()
    with Progress(summary, stream) as progress:
        for _ in range(5):
            summary.count(GOOD)
            progress.advance(GOOD, summary)
        until(lambda: "5/8" in last_frame(stream), lambda: "the bar was not drawn again", PATIENCE_S)


def test_unended_tasks_are_not_shown_as_done():
    summary, stream = Summary(planned=8), Terminal()
    summary.begin()
    with Progress(summary, stream) as progress:
        for _ in range(5):
            summary.count(GOOD)
            progress.advance(GOOD, summary)
        summary.close()
    assert summary.unresolved == 3
    assert "5/8" in last_frame(stream)
