"""How busy the servers of a run are, as their metrics and the head server report it."""

from __future__ import annotations

import os
import signal
import time
import urllib.request

import pytest

from nemo_gym.calls.loads import LoadReader, load_of
from nemo_gym.config.models import HeadConfig
from nemo_gym.memory import resident_bytes
from nemo_gym.web.telemetry import Telemetry

pytestmark = pytest.mark.slow

FAILS = """
from fastapi import Request

from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Failing(SimpleResourcesServer):
    def setup_webserver(self):
        app = super().setup_webserver()

        @app.post("/fail")
        async def fail(request: Request) -> None:
            raise ValueError("a bug")

        @app.post("/burn")
        def burn() -> None:
            sum(range(20_000_000))

        return app

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


def post(url):
    request = urllib.request.Request(url, data=b"", method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPErrorProcessor())
    try:
        return opener.open(request, timeout=100).status
    except urllib.error.HTTPError as error:
        return error.code


def head_of(command):
    host, _, port = command.head.removeprefix("http://").rpartition(":")
    return HeadConfig(host=host, port=int(port))


async def read_until(reader, condition):
    """Read until a condition holds. The head server gives a server two seconds, which a busy machine may exceed."""
    deadline = time.monotonic() + 100
    while not condition(*(loads := await reader.read())):
        assert time.monotonic() < deadline, loads
    return loads


def test_counters_and_memory_are_parsed():
    telemetry = Telemetry("plain")
    telemetry.refused = 3
    for status in (200, 200, 404, 500, 503):
        telemetry.count('/a"}/b', status, 0.1)
    telemetry.count("/other", 200, 0.1)
    load = load_of(telemetry.text())
    assert (load.requests, load.errors, load.refused, load.processes) == (6, 2, 3, 1)
    assert 0.5 < load.memory_bytes / resident_bytes() < 2
    assert load.cpu_seconds > 0
    assert abs(load.at - time.time()) < 100


def test_loads_of_workers_are_added():
    first, second = (load_of(Telemetry("plain").text()) for _ in range(2))
    both = first.model_copy(update={"requests": 2, "loop_lag_s": 0.1}) + second.model_copy(
        update={"requests": 3, "loop_lag_s": 0.3, "memory_bytes": None}
    )
    assert (both.requests, both.loop_lag_s, both.processes) == (5, 0.3, 2)
    assert both.memory_bytes == first.memory_bytes
    assert both.cpu_seconds == first.cpu_seconds + second.cpu_seconds


async def test_rates_are_those_since_the_previous_reading(workplace):
    command = workplace.start_servers(workplace.environment("busy", FAILS))
    url = command.servers["busy"]["url"]
    async with LoadReader(head_of(command), run_token=None) as reader:
        (first,) = await read_until(reader, lambda load: load.memory_mb is not None)
        assert (first.cpu_percent, first.requests_per_s, first.errors_per_s) == (None, None, None)
        assert [post(f"{url}/{route}") for route in ("fail", "fail", "burn")] == [500, 500, 200]
        (second,) = await reader.read()
    assert (second.name, second.tier, second.address, second.state) == ("busy", "environment", url, "up")
    assert (second.requests - first.requests, second.errors - first.errors) == (3, 2)
    assert second.cpu_percent > 0
    assert abs(second.requests_per_s - 1.5 * second.errors_per_s) < 1e-6
    assert second.memory_mb > 10


async def test_workers_are_summed_and_missing_ones_counted(workplace):
    command = workplace.start_servers(workplace.environment("double", settings="num_workers: 2"))
    pids = command.servers["double"]["pids"]
    async with LoadReader(head_of(command)) as reader:
        (both,) = await read_until(reader, lambda load: (load.state, load.problem) == ("up", None))
        os.kill(pids[1], signal.SIGSTOP)
        (one,) = await read_until(reader, lambda load: load.memory_mb is not None)
        os.kill(pids[1], signal.SIGCONT)
        (again,) = await reader.read()
    assert one.problem == "1 of 2 workers does not answer" if one.state == "up" else one.problem == "does not answer"
    assert (one.cpu_percent, again.cpu_percent) == (None, None)
    assert one.memory_mb < both.memory_mb


async def test_server_that_hangs_is_down(workplace):
    command = workplace.start_servers(workplace.environment("asleep"), workplace.environment("awake"))
    os.kill(command.servers["asleep"]["pid"], signal.SIGSTOP)
    async with LoadReader(head_of(command)) as reader:
        asleep, _ = await read_until(reader, lambda _, awake: (awake.state, awake.problem) == ("up", None))
    assert (asleep.state, asleep.problem, asleep.in_flight) == ("down", "does not answer", None)


async def test_restarted_server_is_starting_until_it_answers(workplace):
    slow_to_start = FAILS.replace(
        "class Failing",
        "import os, time\n\nif os.path.exists('again'):\n    time.sleep(3600)\nopen('again', 'w')\n\n\nclass Failing",
    ).replace("'again'", repr(str(workplace.folder / "again")))
    command = workplace.start_servers(workplace.environment("slow", slow_to_start))
    os.kill(command.servers["slow"]["pid"], signal.SIGKILL)
    command.wait_for("It is started again in ")
    async with LoadReader(head_of(command)) as reader:
        (load,) = await reader.read()
        deadline = time.monotonic() + 100
        while load.state == "down" and time.monotonic() < deadline:
            (load,) = await reader.read()
    assert (load.state, load.problem, load.in_flight) == ("starting", "does not answer", None)
