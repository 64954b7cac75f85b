"""Tests of the model of `bench scale`: conservation, Little's law, bottlenecks, failures, and the command."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.scale import main
from bench.scale_checks import compare
from bench.scale_constants import Constants
from bench.scale_head import Head
from bench.scale_model import Collection
from bench.scale_result import SIGNS, Result, lost_share, simulated
from bench.scale_setup import Setup
from bench.stations import Clock
from tests.each_case import each_case

QUICK = Constants(tool_calls=1, answer_tokens=100)


def result_of(setup: Setup, **changed: Any) -> Result:
    return simulated(Collection(setup, replace(QUICK, **changed)))


def test_every_rollout_ends_exactly_once():
    constants = replace(QUICK, node_failures_per_h=30, back_after_s=20, rollout_timeout_s=25, slots=40, queued=5,
                        full_patience_s=2, engine_tokens_per_s=1_000)  # fmt: skip
    model = Collection(Setup(4, 250, rollouts=3_000, collectors=3, random_failures=True), constants)
    model.run()
    assert sorted(each.number for each in model.ended) == list(range(1, 3_001))
    assert model.in_flight == 0
    assert not any(node.rollouts for node in model.all_nodes)
    # All causes occur, otherwise the test would show little.
    assert set(model.outcomes) == {"scored", "timeout", "overloaded", "lost"}
    assert model.lost.attempts > model.outcomes["lost"] > 0


@each_case("setup", [Setup(1, 100), Setup(1, 1_000), Setup(10, 1_000, collectors=4), Setup(3, 500, replicas=2)])
def test_in_flight_is_throughput_times_duration(setup: Setup):
    result = result_of(setup)
    assert result.rollouts_per_s * result.mean_s == pytest.approx(setup.in_flight, rel=0.07)


def test_idle_cluster_needs_only_the_models_time():
    # 2 answers of 100 tokens at 50 tokens per second
    assert result_of(Setup(2, 50)).mean_s == pytest.approx(4.0, rel=0.05)


def test_more_in_flight_never_lowers_throughput():
    results = [result_of(Setup(2, in_flight)) for in_flight in (50, 200, 800, 3_200)]
    speeds = [result.rollouts_per_s for result in results]
    assert all(later > 0.97 * earlier for earlier, later in pairwise(speeds))
    durations = [result.mean_s for result in results]
    assert all(later > 0.95 * earlier for earlier, later in pairwise(durations))
    assert durations[-1] > 5 * durations[0]
    # Two engines with 10,000 tokens per second, and 200 tokens per rollout
    assert speeds[-1] == pytest.approx(100, rel=0.03)


def test_more_nodes_never_lower_throughput():
    speeds = [result_of(Setup(nodes, 1_600)).rollouts_per_s for nodes in (1, 2, 4, 8)]
    assert all(later > 0.97 * earlier for earlier, later in pairwise(speeds))


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
    ({"heartbeat_part_us": 500}, Setup(200, 400), "head CPU"),
])  # fmt: skip
def test_scarcest_resource_is_named(changed: dict[str, Any], setup: Setup, first: str):
    result = result_of(setup, **changed)
    assert result.first == first
    assert result.uses[first].share > 0.9
    # What CPU, links and engines have done cannot exceed what they can do.
    physical = [use.share for use in result.uses.values() if use.unit in ("cores", "MB/s", "tokens/s")]
    assert max(physical) < 1.03


def test_every_resource_has_a_sign():
    assert set(result_of(Setup(2, 50)).uses) == set(SIGNS)


def test_failing_node_loses_its_rollouts_once():
    model = Collection(Setup(5, 500, rollouts=2_500, fails_at=0.5), QUICK)
    model.run()
    lost = model.lost
    assert lost.failures == 1
    assert 50 < lost.attempts < 200
    assert model.outcomes == {"scored": 2_500}
    assert lost.waited_s / lost.attempts <= QUICK.lost_after_s + QUICK.retry_pause_s
    assert 0 < lost.work_s / lost.attempts < 20


def test_rollouts_wait_while_the_only_node_is_down():
    model = Collection(Setup(1, 50, rollouts=500, fails_at=0.5), replace(QUICK, back_after_s=400))
    model.run()
    assert model.outcomes == {"scored": 500}
    assert max(each.took_s for each in model.ended) > 400
    late = Collection(Setup(1, 50, rollouts=500, fails_at=0.5), replace(QUICK, back_after_s=2_000))
    late.run()
    # The 50 that were lost, and those that were to begin meanwhile
    assert late.outcomes == {"scored": 450, "timeout": 50}


def test_lost_share_matches_simulated_failures():
    constants = replace(QUICK, node_failures_per_h=6, back_after_s=10, answer_tokens=300)
    model = Collection(Setup(20, 400, rollouts=20_000, random_failures=True), constants)
    model.run()
    assert model.lost.failures > 10
    lost_s = model.lost.work_s + model.lost.waited_s
    simulated_share = lost_s / sum(each.took_s for each in model.ended)
    quiet = Collection(Setup(20, 400, rollouts=4_000), constants)
    quiet.run()
    times = [each.took_s for each in quiet.ended]
    assert simulated_share == pytest.approx(lost_share(times, constants), rel=0.5)


def test_head_that_is_too_slow_loses_healthy_nodes():
    late = {}
    for report_us in (1_000, 15_000):
        clock = Clock()
        constants = replace(Constants(), heartbeat_us=report_us, heartbeat_part_us=0.0)
        head = Head(clock, constants, Collection(Setup(1, 1)).random, 1_000, 1)
        head.start()
        clock.run(60.0)
        late[report_us] = head.lost_by_mistake
    assert late[1_000] == 0
    assert late[15_000] > 1_000


@pytest.mark.slow
def test_model_agrees_with_the_measured_machine():
    ratios = {each.case: each.ratio for each in compare()}
    assert all(0.9 < ratio < 1.3 for ratio in ratios.values()), ratios


def test_same_seed_gives_the_same_result():
    first, second, other = (result_of(Setup(3, 300, seed=seed)) for seed in (1, 1, 2))
    assert first == second
    assert first.mean_s != other.mean_s


@pytest.mark.slow
def test_command_prints_cases_and_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "scale.svg"
    words = ["--nodes", "1", "10", "--in-flight", "100", "--set", "answer_tokens=100", "--plot", str(picture)]
    assert main(words) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [(case["nodes"], case["in_flight"]) for case in json.loads(last)["cases"]] == [(1, 100), (10, 100)]
    assert any(line.startswith("when one node fails") for line in lines)
    assert "used share of each resource" in picture.read_text("utf-8")


@each_case(("words", "message"), [
    (["--set", "agent_mss=1"], "--set agent_mss=1: 'agent_mss' is not a constant. --constants lists them"),
    (["--set", "agent_ms=much"], "--set agent_ms=much: 'much' is not a number. Write NAME=VALUE"),
    (["--set", "agent_ms"], "--set agent_ms: '' is not a number. Write NAME=VALUE"),
    (["--set", "tokens_per_s=0"], "--set tokens_per_s=0: tokens_per_s must be a finite number above 0"),
    (["--set", "agent_ms=-1"], "--set agent_ms=-1: agent_ms must be a finite number, 0 or more"),
    (["--set", "slots=2.5"], "--set slots=2.5: slots must be a whole number"),
    (["--plot", "missing/scale.svg"], "--plot missing/scale.svg: the folder missing does not exist"),
    (["--plot", "scale.txt"], "--plot scale.txt: the suffix must be .svg or .png or .pdf"),
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
    assert all(each.metadata["source"] and each.metadata["unit"] for each in fields(Constants))
