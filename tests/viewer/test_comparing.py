"""Tests of the comparison of runs: its numbers are those of `ng eval compare`."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.cli.main import main
from tests.viewer.rollout_api import Api
from tests.viewer.rollout_rows import failed, row, run_record, said, scored, write_run

REPEATS = 4


def results_of(seed: int, tasks: range, rewards: tuple[float, ...], chance: float) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    found = []
    for task in tasks:
        agent = {"type": "responses_api_agents", "name": f"agent_{task % 2}"}
        for repeat in range(REPEATS):
            planned = {**row(task, repeat, prompt=f"Question {task}"), "agent_ref": agent}
            reward = rewards[-1] if draw.random() < chance * (1 + task % 3) / 3 else draw.choice(rewards)
            found.append(failed(planned) if draw.random() < 0.05 else scored(planned, said("x"), reward=reward))
    return found


def write(folder: Path, name: str, results: list[dict[str, Any]], **record: Any) -> Path:
    is_scored = [each for each in results if "reward" in each]
    others = [each for each in results if "reward" not in each]
    (folder / f"{name}_run.json").write_bytes(run_record(**record))
    return write_run(folder, is_scored, others, name=name)


def compared(*paths: Path, **parameters: Any) -> Any:
    with Api(*paths) as api:
        ids = [api.id_of(path) for path in paths]
        return api.get("compare", run=ids, **parameters)


@pytest.fixture(params=[(0.0, 1.0), (0.0, 0.25, 0.8)], ids=["binary", "graded"])
def runs(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    a = write(tmp_path, "a", results_of(1, range(40), request.param, 0.3))
    b = write(tmp_path, "b", results_of(2, range(3, 44), request.param, 0.6))
    return a, b


def test_numbers_are_those_of_the_command(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    found = compared(*runs)
    assert main(["eval", "compare", *map(str, runs), "--json"]) == 0
    report = orjson.loads(capsys.readouterr().out)
    [expected] = [each for each in report["comparisons"][0]["rows"] if _is_overall_reward(each)]
    [difference] = found["differences"]
    assert [each["mean"] for each in found["means"]] == pytest.approx([expected["a"], expected["b"]])
    assert difference["mean"] == pytest.approx(expected["difference"])
    assert difference["ci"] == pytest.approx([expected["low"], expected["high"]])
    assert difference["p"] == pytest.approx(expected["p_value"])
    assert [difference[name] for name in ("won", "lost", "same")] == [
        expected["won"],
        expected["lost"],
        expected["unchanged"],
    ]
    assert difference["changed"] == difference["won"] + difference["lost"]


def _is_overall_reward(line: dict[str, Any]) -> bool:
    return (line["agent"], line["metric"], line["subset"]) == ("overall", "reward", None)


def test_tasks_are_ordered_by_their_difference(tmp_path: Path):
    a = write(tmp_path, "a", [scored(row(task, prompt=f"Q {task}"), said(""), reward=0.5) for task in range(4)])
    b = write(tmp_path, "b", [scored(row(task), said(""), reward=(0.5, 0.0, 0.6, 1.0)[task]) for task in range(4)])
    c = write(tmp_path, "c", [scored(row(task), said(""), reward=(0.5, 1.0, 0.6, 0.75)[task]) for task in range(4)])
    found = compared(a, b, c)
    assert [(each["task"], each["change"], each["rewards"]) for each in found["tasks"]] == [
        (1, "changed", [0.5, 0.0, 1.0]),
        (3, "won", [0.5, 1.0, 0.75]),
        (2, "won", [0.5, 0.6, 0.6]),
        (0, "same", [0.5, 0.5, 0.5]),
    ]
    assert found["tasks"][0]["title"] == "Q 1"
    assert [(each["won"], each["lost"], each["same"]) for each in found["differences"]] == [(2, 1, 1), (3, 0, 1)]


def test_rounding_is_not_a_change(tmp_path: Path):
    large = 1e6
    a = write(tmp_path, "a", [scored(row(task), said(""), reward=large) for task in (0, 1)])
    b = write(tmp_path, "b", [scored(row(task), said(""), reward=large + (1e-4, 1.0)[task]) for task in (0, 1)])
    [difference] = compared(a, b)["differences"]
    assert (difference["won"], difference["lost"], difference["same"]) == (1, 0, 1)


def test_only_shared_tasks_count(tmp_path: Path):
    a = write(tmp_path, "a", [scored(row(task), said(""), reward=task) for task in range(3)])
    others = [*(scored(row(task), said(""), reward=0) for task in (1, 2, 3)), failed(row(4))]
    b = write(tmp_path, "b", [*others], input={"path": "other.jsonl", "sha256": "1", "bytes": 1})
    found = compared(a, b)
    assert (found["shared"], sorted(found["only"].values())) == (2, [1, 2])
    assert [each["mean"] for each in found["means"]] == [1.5, 0.0]
    assert any("task files of the runs differ" in note for note in found["notes"])
    assert any("1 failed rollout left out" in note for note in found["notes"])


def test_task_without_a_score_is_left_out(tmp_path: Path):
    a = write(tmp_path, "a", [scored(row(0), said(""), reward=0.5), scored(row(1), said(""), reward=0.0)])
    b = write(tmp_path, "b", [scored(row(0), said(""), reward=0.75), failed(row(1))])
    found = compared(a, b)
    assert (found["shared"], [each["mean"] for each in found["means"]]) == (2, [0.5, 0.75])
    assert "1 shared task without a scored rollout in every run: not compared." in found["notes"]


def test_unresolved_rollouts_are_not_compared(tmp_path: Path):
    planned = [row(task) for task in range(3)]
    paths = [write_run(tmp_path, [scored(planned[0], said(""))], planned=planned, name=name) for name in "ab"]
    found = compared(*paths)
    assert (found["shared"], list(found["only"].values()), found["notes"][1:]) == (1, [0, 0], [])


def test_filter_selects_the_compared_rollouts(tmp_path: Path):
    paths = [write(tmp_path, name, results_of(1, range(10), (0.0, 1.0), 0.5)) for name in "ab"]
    assert compared(*paths, task=[1, 2])["shared"] == 2


def test_runs_without_shared_tasks_have_no_numbers(tmp_path: Path):
    a = write(tmp_path, "a", [scored(row(0), said(""))])
    b = write(tmp_path, "b", [scored(row(1), said(""))])
    found = compared(a, b)
    assert (found["shared"], found["means"], found["differences"], found["tasks"]) == (0, [], [], [])
    assert found["notes"] == ["The runs do not have a task in common. Tasks are paired by their agent and number."]


def test_single_agents_are_paired_despite_their_names(tmp_path: Path):
    other = {"agent_ref": {"type": "responses_api_agents", "name": "other_agent"}}
    a = write(tmp_path, "a", [scored(row(task), said(""), reward=0.25) for task in (0, 1)])
    b = write(tmp_path, "b", [{**scored(row(task), said(""), reward=0.75), **other} for task in (0, 1)])
    found = compared(a, b)
    assert (found["shared"], found["differences"][0]["mean"], found["differences"][0]["won"]) == (2, 0.5, 2)


def test_differing_settings_are_listed(tmp_path: Path):
    one = {"num_repeats": 2, "limit": 5}
    paths = [
        write(tmp_path, name, [scored(row(), said(""))], settings={**one, "limit": limit})
        for name, limit in (("a", 5), ("b", 9))
    ]
    assert compared(*paths)["settings"] == [{"name": "limit", "values": [5, 9]}]


def test_without_numpy_only_intervals_are_missing(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    expected = compared(*runs)
    for name in [name for name in sys.modules if name.startswith("nemo_gym.evaluation.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    found = compared(*runs)
    assert (found["differences"][0]["ci"], found["differences"][0]["p"]) == (None, None)
    assert found["differences"][0]["mean"] == expected["differences"][0]["mean"]
    assert found["tasks"] == expected["tasks"]
    assert any("pip install 'nemo-gym[eval]'" in note for note in found["notes"])


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_runs_are_compared(tmp_path: Path, count: int):
    paths = [write(tmp_path, f"r{number}", [scored(row(), said(""))]) for number in range(7)]
    with Api(*paths) as api:
        ids = [api.id_of(path) for path in paths][:count]
        assert api.client.get("/api/compare", params={"run": ids}).status_code == 400
