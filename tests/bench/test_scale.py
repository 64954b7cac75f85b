"""Tests of `bench scale`: bounds of the throughput, the scarcest resource, and the command."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest

from bench.scale import MEASURED, SIGNS, Constants, Result, Setup, main, result_of
from tests.each_case import each_case


def quick(setup: Setup, **changed: Any) -> Result:
    return result_of(setup, replace(Constants(tool_calls=1, answer_tokens=100), **changed))


def test_idle_cluster_needs_only_the_models_time():
    # 2 answers of 100 tokens at 50 tokens per second
    result = quick(Setup(2, 50))
    assert result.mean_s == pytest.approx(4.0, rel=0.01)
    assert result.rollouts_per_s == pytest.approx(50 / 4.0, rel=0.01)


def test_full_engines_only_make_rollouts_slower():
    results = [quick(Setup(2, in_flight)) for in_flight in (50, 200, 800, 3_200)]
    assert all(later.rollouts_per_s >= earlier.rollouts_per_s for earlier, later in pairwise(results))
    # Two engines with 10,000 tokens per second, and 200 tokens per rollout
    assert results[-1].rollouts_per_s == pytest.approx(100)
    assert results[-1].mean_s == pytest.approx(32)


@each_case(("changed", "setup", "first"), [
    ({"engine_tokens_per_s": 500}, Setup(1, 200), "endpoint"),
    ({"environment_ms": 200}, Setup(2, 200), "resources CPU"),
    ({"agent_ms": 200}, Setup(2, 200), "agent CPU"),
    ({"model_ms": 200}, Setup(2, 200), "model server CPU"),
    ({"collector_ms": 200}, Setup(2, 200), "collector CPU"),
    ({"environment_ms": 200, "cores": 1}, Setup(1, 200, replicas=4), "node cores"),
    ({"open_files": 128}, Setup(20, 400), "collector files"),
    ({"disk_mb_s": 0.05}, Setup(2, 200), "collector disk"),
    ({"link_gbit_s": 0.0005}, Setup(2, 200), "collector network"),
    ({"slots": 30, "engine_tokens_per_s": 1e6}, Setup(2, 200), "agent slots"),
    ({"agent_files": 900}, Setup(2, 200), "agent files"),
    ({"node_kb": 1e6}, Setup(2, 200), "node memory"),
    ({"collector_kb": 1e6}, Setup(2, 200), "collector memory"),
    ({"heartbeat_us": 10_000}, Setup(200, 400), "head CPU"),
])  # fmt: skip
def test_scarcest_resource_is_named(changed: dict[str, Any], setup: Setup, first: str):
    result = quick(setup, **changed)
    name, use = next(iter(result.uses.items()))
    assert (name, use.share > 0.9) == (first, True)
    # The work that is done cannot exceed what is there. The head server's does not depend on the throughput.
    done = [use.share for name, use in result.uses.items() if use.unit in ("cores", "MB/s") and name != "head CPU"]
    assert max(done) <= 1 + 1e-9
    assert set(result.uses) == set(SIGNS)


def test_several_collectors_share_the_rollouts():
    alone, four = (quick(Setup(1_000, 100_000, collectors=number)) for number in (1, 4))
    assert (alone.in_flight, four.in_flight) == (54_505, 100_000)
    assert four.uses["collector files"].share == pytest.approx(alone.uses["collector files"].share / 4)


def test_longer_rollouts_lose_more_to_failures():
    shares = [result_of(Setup(10, 100), Constants(answer_tokens=tokens)).lost_share for tokens in (750, 45_000)]
    assert shares[1] > 10 * shares[0] > 0


def test_bound_is_near_the_measured_machine():
    assert all(1 < case.ratio < 1.3 for case in MEASURED), [case.ratio for case in MEASURED]


def test_command_prints_all_cases(capsys: pytest.CaptureFixture[str]):
    assert main(["--nodes", "1", "10", "--in-flight", "1000", "--set", "answer_tokens=1500"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [case["setup"]["nodes"] for case in json.loads(last)["cases"]] == [1, 10]
    assert "    1              1,000       1.7/s   600 s   0.0027%  endpoint 100%, agent slots 6%" in lines
    assert any(line.startswith("  endpoint: replies become slower") for line in lines)


@each_case(("words", "message"), [
    (["--set", "agent_mss=1"], "--set agent_mss=1: 'agent_mss' is not a constant. --constants lists them"),
    (["--set", "agent_ms=much"], "--set agent_ms=much: 'much' is not a number. Write NAME=VALUE"),
    (["--set", "agent_ms"], "--set agent_ms: '' is not a number. Write NAME=VALUE"),
    (["--set", "tokens_per_s=0"], "--set tokens_per_s=0: tokens_per_s must be a finite number above 0"),
    (["--set", "agent_ms=-1"], "--set agent_ms=-1: agent_ms must be a finite number, 0 or more"),
    (["--set", "slots=2.5"], "--set slots=2.5: slots must be a whole number"),
    (["--nodes", "10", "--in-flight", "5"], "every case has fewer rollouts in flight than nodes"),
])  # fmt: skip
def test_invalid_option_is_one_message(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    assert message in capsys.readouterr().err


@each_case("number", ["0", "-1", "many", "1.5"])
def test_number_of_nodes_is_checked(number: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main([f"--nodes={number}"])
    assert f"'{number}' is not a whole number of 1 or more" in capsys.readouterr().err


def test_every_constant_has_a_source(capsys: pytest.CaptureFixture[str]):
    assert main(["--constants"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [each.name for each in fields(Constants)]
    assert all(each.metadata["source"].split(": ")[0] in ("measured", "set", "assumed") for each in fields(Constants))
