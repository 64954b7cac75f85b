"""The page of a training, through the viewer's API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewer.index_rows import scored, write
from tests.viewer.rollout_api import Api
from tests.viewer.training_run import REPEATS, SOLVED, VERSIONS, write_training


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with Api(write_training(tmp_path)) as api:
        yield api


def test_curves_follow_the_versions(api: Api) -> None:
    found = api.get("training")
    [curve] = found["curves"]
    assert (curve["agent"], found["points"]) == ("counter_agent", [*range(VERSIONS)])
    solved = [sum(SOLVED[name][version] for name in SOLVED) for version in range(VERSIONS)]
    assert curve["reward"] == pytest.approx([each / (REPEATS * len(SOLVED)) for each in solved])
    assert curve["mixed"] == pytest.approx([1 / 3, 0, 0, 0, 1 / 3, 1 / 3])
    assert curve["output_tokens"] == [5.0] * VERSIONS
    assert curve["log_prob"] == [-2.0 - version for version in range(VERSIONS)]
    assert curve["failed"] == pytest.approx([0.0] * (VERSIONS - 1) + [1 / 13])
    # Only the rollouts of one prompt end after the next version began.
    assert curve["staleness"] == pytest.approx([1 / 3] * VERSIONS)


def test_steps_are_those_noted_after_the_rollouts(api: Api) -> None:
    found = api.get("training", over="step")
    # The last rollouts ended after the last note.
    assert (found["has_steps"], found["points"]) == (True, [*range(1, VERSIONS + 1)])
    rewards = [sum(SOLVED[name][step] for name in ("easy", "flat")) for step in range(VERSIONS)]
    late = [0, *SOLVED["hard"][:-1]]
    groups = [2, *[3] * (VERSIONS - 1)]
    means = [(one + other) / n / REPEATS for one, other, n in zip(rewards, late, groups, strict=True)]
    assert found["curves"][0]["reward"] == pytest.approx(means)
    assert found["noted"] == [
        {"name": "loss", "at": [*range(1, VERSIONS + 1)], "values": [1 / step for step in range(1, VERSIONS + 1)]}
    ]


def test_map_shows_when_a_task_stopped_to_teach(api: Api) -> None:
    found = api.get("training")
    assert found["counts"] == {"teaching": 1, "stopped": 1, "flat": 1, "once": 0}
    assert [(row["title"], row["taught_until"]) for row in found["rows"]] == [
        ("A prompt: flat 0", None), ("A prompt: easy 0", 0), ("A prompt: hard 0", 5),
    ]  # fmt: skip
    never, mixed, always = [1, 0, 0], [0, 1, 0], [0, 0, 1]
    assert found["rows"][1]["cells"] == [mixed, *[always] * 5]
    assert found["rows"][2]["cells"] == [*[never] * 4, mixed, mixed]
    assert found["rows"][1]["tasks"] == [len(SOLVED) * version for version in range(VERSIONS)]


def test_many_tasks_share_rows(tmp_path: Path) -> None:
    with Api(write_training(tmp_path, copies=150)) as api:
        found = api.get("training")
    assert found["counts"] == {"teaching": 150, "stopped": 150, "flat": 150, "once": 0}
    assert (len(found["rows"]), sum(row["count"] for row in found["rows"])) == (150, 450)
    assert {sum(map(sum, filter(None, row["cells"]))) for row in found["rows"]} == {3 * VERSIONS}


def test_tasks_of_one_version_are_left_out(api: Api) -> None:
    found = api.get("training", field="policy_version=2")
    assert (found["points"], found["rows"], found["counts"]["once"]) == ([2], [], 3)


def test_other_runs_have_no_training(tmp_path: Path) -> None:
    with Api(write(tmp_path / "x.jsonl", scored(0, policy_version="main"), scored(1))) as api:
        assert (api.get("training")["points"], api.get("training", over="step")["curves"]) == ([], [])
        assert "over" in api.get("training", 400, over="epoch")["detail"]
