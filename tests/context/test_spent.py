"""The headers that report a rollout's time and tool calls, and invalid ones from agents that anyone wrote."""

from __future__ import annotations

import pytest

from nemo_gym.context.spent import MOST_CHARACTERS, MOST_TOOLS, OTHER_TOOLS, Spent
from nemo_gym.http.reply import Headers
from tests.each_case import each_case

pytestmark = pytest.mark.bare


def spent_of(*headers: tuple[bytes, bytes]) -> Spent:
    spent = Spent()
    spent.add_headers(Headers(headers))
    return spent


def test_headers_carry_phases_and_tools():
    spent = Spent()
    spent.add("seed", 0.0012)
    spent.add("tools", 0.05)
    spent.add("tools", 0.038)
    spent.add_tool("search", 1, 0)
    spent.add_tool("search", 1, 1)
    headers = spent.headers()
    assert headers == [
        (b"server-timing", b"seed;dur=1.2, tools;dur=88.0"),
        (b"x-nemo-gym-tools", b'{"search":[2,1]}'),
    ]
    read = spent_of(*headers)
    assert read.seconds == pytest.approx({"seed": 0.0012, "tools": 0.088})
    assert read.tools == {"search": (2, 1)}


def test_rollout_without_calls_sends_no_header():
    assert Spent().headers() == []


def test_reports_of_several_agents_are_added():
    read = spent_of((b"Server-Timing", b"model;dur=1"), (b"X-Nemo-Gym-Tools", b'{"a":[1,1]}'))
    further = [(b"server-timing", b"model;dur=2,verify;dur=3"), (b"x-nemo-gym-tools", b'{"a":[2,0],"b":[1,0]}')]
    read.add_headers(Headers(further))
    assert read.seconds == pytest.approx({"model": 0.003, "verify": 0.003})
    assert read.tools == {"a": (3, 1), "b": (1, 0)}


@each_case(
    "value",
    [
        b"",
        b"model",
        b"model;dur=",
        b"model;dur=-1",
        b"model;dur=inf",
        b"model;dur=nan",
        b"model;dur=1e300",
        b"model;dur=" + b"9" * 400,
        b"remodel;dur=1",
        b"total;dur=1, cache;desc=hit",
        b"model;dur=1" + b" " * MOST_CHARACTERS,
        b"\xff\xfe",
    ],
)
def test_invalid_durations_are_ignored(value):
    assert spent_of((b"server-timing", value)).seconds == {}


@each_case(
    "value",
    [
        b"",
        b"null",
        b"[1, 2]",
        b"[" * 2000,
        b'{"a": 1}',
        b'{"a": [1]}',
        b'{"a": [-1, 0]}',
        b'{"a": [1.5, 0]}',
        b'{"a": [NaN, 0]}',
        b'{"a": ["1", 0]}',
        b'{"a": [%s, 0]}' % (b"9" * 400),
        b'{"%s": [1, 0]}' % (b"a" * 61),
        b'{"\\ud800": [1, 0]}',
        b'{"\xff": [1, 0]}',
        b'{"a": ' + b" " * MOST_CHARACTERS + b"[1, 0]}",
    ],
)
def test_invalid_tool_counts_are_ignored(value):
    assert spent_of((b"x-nemo-gym-tools", value)).tools == {}


def test_valid_values_next_to_invalid_ones_are_read():
    assert spent_of((b"server-timing", b'db;dur=5;desc="model;dur=1", model;dur=7')).seconds == {"model": 0.007}
    assert spent_of((b"x-nemo-gym-tools", b'{"a": [1, 9], "b": null}')).tools == {"a": (1, 1)}


def test_tools_beyond_the_limit_are_summed():
    sent = Spent()
    for number in range(100):
        sent.add_tool(f"tool_{number}_" + "x" * 100, 2, 1)
    read = spent_of(*sent.headers())
    assert read.tools == sent.tools
    assert len(sent.tools) == MOST_TOOLS
    assert sent.tools[OTHER_TOOLS] == (2 * (101 - MOST_TOOLS), 101 - MOST_TOOLS)
    assert max(map(len, sent.tools)) == 60


@each_case("name", ["größe", "\ud800", 'say "hi"', "a\r\nset-cookie: b=c", "back\\slash", "\x00", "🔧"])
def test_odd_names_are_sent_in_printable_ascii(name):
    sent = Spent()
    for number in range(100):
        sent.add_tool(f"{number}{name * 60}", 10**9 - 1, 0)
    ((_, value),) = sent.headers()
    assert value.isascii()
    assert value.decode().isprintable()
    assert len(value) < 2500
    assert spent_of((b"x-nemo-gym-tools", value)).tools.keys() >= sent.tools.keys() - {OTHER_TOOLS}
