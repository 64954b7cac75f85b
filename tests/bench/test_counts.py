"""Tests of the operation counts of `bench counts` and their limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench import counting
from bench.counts import CEILINGS, ROLES, TITLES, ceiling, complaints, counting_processes, gains
from tests.each_case import each_case

WORK = """
import asyncio, json, os
import orjson, pydantic, uvloop
from orjson import loads

class Inner(pydantic.BaseModel):
    number: int

class Outer(pydantic.BaseModel):
    inner: Inner

def work():
    orjson.loads(b'[1, 2]'), loads('[1]'), json.loads('{}')
    Outer.model_validate_json('{"inner": {"number": 1}}')
    Outer(inner={"number": 1})
    pydantic.TypeAdapter(int).validate_python(1)

async def talk(port):
    async def nothing():
        pass
    await asyncio.gather(asyncio.create_task(nothing()), nothing())
    for _ in range(2):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

async def serve_and_talk():
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        await talk(server.sockets[0].getsockname()[1])

if (child := os.fork()) == 0:
    work()
    os._exit(0)
os.waitpid(child, 0)
work()
work()
uvloop.run(serve_and_talk())
print(os.getpid(), child, flush=True)
os.kill(os.getpid(), 9)
"""


def test_killed_process_keeps_counts_separate_from_fork(tmp_path: Path):
    with counting_processes(str(tmp_path)) as cells:
        printed = subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True, check=False)
        parent, child = (int(word) for word in printed.stdout.split())
        counted = counting.read(cells)
    once = {"json_parses": 4, "json_bytes": 6 + 3 + 2 + 24, "validations": 3}
    assert {name: counted[child][name] for name in once} == once
    assert {name: counted[parent][name] for name in once} == {name: 2 * each for name, each in once.items()}
    assert counted[child]["tasks"] == counted[child]["connections"] == 0
    assert counted[parent]["connections"] == 2
    # Two tasks of this file; the event loop adds a number that depends on the Python version.
    assert 2 <= counted[parent]["tasks"] <= 8


def test_processes_outside_the_block_do_not_count(tmp_path: Path):
    with counting_processes(str(tmp_path)) as cells:
        pass
    subprocess.run([sys.executable, "-c", "import json; json.loads('1')"], check=True)
    assert counting.read(cells) == {}


@each_case("name", counting.NAMES)
def test_increase_is_reported_with_both_numbers(name: str):
    allowed = {"agent": dict.fromkeys(counting.NAMES, 1000.0), "model": dict.fromkeys(counting.NAMES, 5.0)}
    counted = {"agent": {**allowed["agent"], name: 1200.0}, "model": dict.fromkeys(counting.NAMES, 5.0)}
    (complaint,) = complaints(counted, allowed)
    assert complaint.startswith("agent: ")
    assert "1,200, of 1,000 allowed" in complaint
    assert complaints(allowed, allowed) == []


def test_decrease_is_reported_without_failure():
    allowed = {"agent": dict.fromkeys(counting.NAMES, 1000.0)}
    counted = {"agent": {**allowed["agent"], "tasks": 800.0}}
    assert gains(counted, allowed) == ["agent: event loop tasks, per rollout: 800, of 1,000 allowed"]
    assert gains(allowed, allowed) == complaints(counted, allowed) == []


def test_role_without_counts_is_a_failure():
    allowed = {"agent": dict.fromkeys(counting.NAMES, 5.0)}
    assert complaints({}, allowed) == ["agent: nothing was counted"]
    assert complaints({"agent": dict.fromkeys(counting.NAMES, 0.0)}, allowed) == ["agent: nothing was counted"]
    assert complaints(allowed, {}) == ["agent: bench/counts.json has no limits for this role"]


@each_case(("name", "counted"), [("tasks", 0.0), ("tasks", 2.0), ("json_bytes", 5_000.0)])
def test_limit_has_a_margin_of_few_percent(name: str, counted: float):
    assert counted < ceiling(name, counted) <= counted * 1.04 + 0.06


@each_case(("counted", "most"), [(0, 8), (64, 136), (70, 136), (73, 264), (130, 264)])
def test_connections_may_be_opened_twice(counted: int, most: int):
    assert ceiling("connections", counted) == most


def test_every_count_has_a_limit():
    ceilings = json.loads(CEILINGS.read_text("utf-8"))
    assert set(ceilings) == set(ROLES)
    assert all(set(each) == set(TITLES) for each in ceilings.values())
