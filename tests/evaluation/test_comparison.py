"""Comparing the files of runs: pairing, metrics, subsets, failures."""

from __future__ import annotations

import random

import pytest

from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.comparison import Selection, compare
from nemo_gym.evaluation.gates import decide, parse_gate
from tests.evaluation.runs import failure, rollout, write_rows, write_run

HALF = [[1.0, 0.0]] * 40
BETTER = [[1.0, 1.0]] * 10 + [[1.0, 0.0]] * 28 + [[0.0, 0.0]] * 2


def rows_of(*paths, **selection):
    (comparison,) = compare(list(paths), Selection(**selection))
    return {(row.agent, row.subset, row.metric): row for row in comparison.rows}


def row_of(*paths, metric="reward", **selection):
    return next(row for key, row in rows_of(*paths, **selection).items() if key[1:] == (None, metric))


def test_rewards_are_compared_task_by_task(tmp_path):
    a, b = write_run(tmp_path / "a.jsonl", HALF), write_run(tmp_path / "b.jsonl", BETTER)
    found = row_of(a, b).scored
    assert (found.a, found.b) == (0.5, 0.6)
    assert (found.won, found.lost, found.tasks) == (10, 2, 40)
    low, high = found.difference.bounds()
    assert 0 < low < 0.1 < high
    assert [task.task for task in found.most_lost] == [38, 39]
    assert found.p_value == pytest.approx(2 * (66 + 12 + 1) / 2**12)


def test_equal_rewards_are_not_certainty(tmp_path):
    a, b = (write_run(tmp_path / f"{name}.jsonl", [[-1.0] * 16] * 5) for name in "ab")
    low, high = row_of(a, b).scored.difference.bounds()
    assert low < -0.3 < 0.3 < high


def test_pass_at_k_is_that_of_the_repeats(tmp_path):
    a, b = write_run(tmp_path / "a.jsonl", HALF), write_run(tmp_path / "b.jsonl", BETTER)
    found = row_of(a, b, metric="pass@2").scored
    assert (found.a, found.b, found.difference.mean) == (1.0, 0.95, pytest.approx(-0.05))
    assert row_of(a, b, metric="pass@1", metrics=["pass@1"]).scored.difference.mean == pytest.approx(0.1)


def test_order_of_the_files_does_not_matter(tmp_path):
    a = write_run(tmp_path / "a.jsonl", HALF)
    b = write_run(tmp_path / "b.jsonl", BETTER)
    lines = b.read_bytes().splitlines(keepends=True)
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b"".join(reversed(lines)))
    first, second = row_of(a, b).scored, row_of(a, mixed).scored
    assert first.difference.bounds() == second.difference.bounds()
    assert (first.won, first.lost) == (second.won, second.lost)


def test_scores_are_compared_and_echoes_are_not(tmp_path):
    a = write_run(tmp_path / "a.jsonl", HALF, accuracy=0.5, difficulty=0.3, level=4)
    b = write_run(tmp_path / "b.jsonl", BETTER, accuracy=0.75, difficulty=0.3, level=5)
    assert {metric for _, _, metric in rows_of(a, b)} == {"reward", "pass@2", "accuracy"}
    assert row_of(a, b, metric="level", metrics=["level"]).scored.difference.mean == 1


def test_subsets_are_compared_separately(tmp_path):
    a, b = write_run(tmp_path / "a.jsonl", HALF), write_run(tmp_path / "b.jsonl", BETTER)
    found = rows_of(a, b, by="subject")
    tasks = {subset: row.scored.tasks for (_, subset, metric), row in found.items() if metric == "reward"}
    assert tasks == {None: 40, "algebra": 20, "geometry": 20}
    with pytest.raises(DataError, match="no row has the field 'topic'"):
        compare([a, b], Selection(by="topic"))


def test_failures_are_counted_both_ways(tmp_path):
    a = write_run(tmp_path / "a.jsonl", [[1.0, 1.0]] * 20)
    b = write_rows(tmp_path / "b.jsonl", [rollout(task, 0, 1.0) for task in range(19)])
    # The second attempt of 0:0 succeeded, all others failed.
    failed = [failure(task, 1) for task in range(20)] + [failure(19, 0, "judge_failed"), failure(0, 0)]
    write_rows(tmp_path / "b_failures.jsonl", failed)
    row = row_of(a, b)
    assert (row.scored.difference.mean, row.scored.tasks) == (0.0, 19)
    assert row.failed_as_zero.tasks == 20
    assert row.failed_as_zero.b == pytest.approx(19 * 0.5 / 20)
    (comparison,) = compare([a, b])
    assert comparison.pairs[0].b.failed_by_cause == {"timeout": 20, "judge_failed": 1}
    (decision,) = decide([parse_gate("reward >= -0.3")], [comparison])
    assert (decision.verdict, decision.with_failed_as_zero) == ("violated", True)


def test_rollouts_without_a_reward_have_failed(tmp_path):
    a = write_run(tmp_path / "a.jsonl", [[1.0]] * 5)
    b = write_rows(tmp_path / "b.jsonl", [rollout(task, 0, 1.0 if task else None) for task in range(5)])
    row = row_of(a, b)
    assert (row.scored.tasks, row.failed_as_zero.b) == (4, 0.8)


def test_agents_are_compared_alone_and_together(tmp_path):
    paths = []
    for name, reward in (("a", 0.0), ("b", 1.0)):
        rows = [rollout(task, 0, reward, "first") for task in range(10)]
        rows += [rollout(task, 0, 1.0, "second") for task in range(30)]
        paths.append(write_rows(tmp_path / f"{name}.jsonl", rows))
    found = {agent: row.scored for (agent, _, metric), row in rows_of(*paths).items() if metric == "reward"}
    assert {agent: (each.tasks, each.difference.mean) for agent, each in found.items()} == {
        "first": (10, 1.0), "second": (30, 0.0), "overall": (40, 0.25)
    }  # fmt: skip


def test_order_of_rollouts_does_not_matter(tmp_path):
    chance = random.Random(4)
    rows = [rollout(task, repeat, round(chance.random(), 1)) for task in range(12) for repeat in range(3)]
    others = [rollout(task, repeat, round(chance.random(), 1)) for task in range(12) for repeat in range(3)]
    b = write_rows(tmp_path / "b.jsonl", others)
    in_order = rows_of(write_rows(tmp_path / "a.jsonl", rows), b)
    chance.shuffle(rows)
    for key, row in rows_of(write_rows(tmp_path / "shuffled.jsonl", rows), b).items():
        found, expected = row.scored, in_order[key].scored
        assert found.p_value == expected.p_value
        assert found.difference.bounds(0.95) == pytest.approx(expected.difference.bounds(0.95))


def run_of_two(path, *, has_failed):
    """Write a run of ten tasks of each of two agents, in which some rollouts have failed."""
    tasks = [(task, agent) for agent in ("first", "second") for task in range(10)]
    failed = [failure(task, 0, agent=agent) for task, agent in tasks if has_failed(task, agent)]
    write_rows(path.with_name(f"{path.stem}_failures.jsonl"), failed)
    scored = [rollout(task, 0, 0.8, agent, f1=0.6, level=3) for task, agent in tasks if not has_failed(task, agent)]
    return write_rows(path, scored)


def verdict(comparison, gate):
    (decision,) = decide([parse_gate(gate)], [comparison])
    return (decision.verdict, decision.with_failed_as_zero)


def test_failed_agents_are_compared_as_zero(tmp_path):
    a = run_of_two(tmp_path / "a.jsonl", has_failed=lambda task, agent: False)
    b = run_of_two(tmp_path / "b.jsonl", has_failed=lambda task, agent: agent == "first")
    row = rows_of(a, b)["first", None, "reward"]
    assert row.scored is None
    assert (row.failed_as_zero.a, row.failed_as_zero.b, row.failed_as_zero.tasks) == (pytest.approx(0.8), 0.0, 10)
    (comparison,) = compare([a, b])
    gates = ["first.reward >= -0.1", "first.accuracy >= -0.1", "first.f1 >= -0.1", "f1 >= -0.1", "reward >= -0.1"]
    assert {gate: verdict(comparison, gate) for gate in gates} == dict.fromkeys(gates, ("violated", True))
    assert verdict(comparison, "second.f1 >= -0.5") == ("holds", False)
    reason = r"no task has scored rollouts of first in both runs\. 'level' is not a score, so failed rollouts"
    with pytest.raises(UsageError, match=reason):
        verdict(comparison, "first.level >= 0")
    (reverse,) = compare([b, a])
    assert verdict(reverse, "first.reward > 0.1") == ("holds", True)


def test_failed_subsets_are_compared_as_zero(tmp_path):
    a = run_of_two(tmp_path / "a.jsonl", has_failed=lambda task, agent: False)
    b = run_of_two(tmp_path / "b.jsonl", has_failed=lambda task, agent: task % 2 == 1)
    row = rows_of(a, b, by="subject")["first", "algebra", "reward"]
    assert (row.scored, row.failed_as_zero.b, row.failed_as_zero.tasks) == (None, 0.0, 5)
    (comparison,) = compare([a, b], Selection(by="subject"))
    assert verdict(comparison, "first[algebra].reward >= -0.1") == ("violated", True)


def test_runs_may_have_only_failures(tmp_path):
    a = run_of_two(tmp_path / "a.jsonl", has_failed=lambda task, agent: False)
    b = run_of_two(tmp_path / "b.jsonl", has_failed=lambda task, agent: True)
    row = rows_of(a, b)["overall", None, "reward"]
    assert (row.scored, row.failed_as_zero.b, row.failed_as_zero.tasks) == (None, 0.0, 20)


def test_single_agents_with_other_names_are_paired(tmp_path):
    a, b = write_run(tmp_path / "a.jsonl", HALF, "old"), write_run(tmp_path / "b.jsonl", BETTER, "new")
    assert row_of(a, b).scored.tasks == 40
    c = write_rows(tmp_path / "c.jsonl", [rollout(0, 0, 1.0, "x"), rollout(0, 0, 1.0, "y")])
    with pytest.raises(DataError, match=r"its agents \(x, y\) are not those of .*a.jsonl \(old\)"):
        compare([a, c])


def test_unpaired_tasks_are_counted(tmp_path):
    a, b = write_run(tmp_path / "a.jsonl", HALF), write_run(tmp_path / "b.jsonl", BETTER[:35])
    (comparison,) = compare([a, b])
    assert (comparison.pairs[0].only_a, comparison.pairs[0].only_b) == (5, 0)
    assert comparison.rows[0].scored.tasks == 35


def test_a_row_field_can_identify_tasks(tmp_path):
    names = ["anna", "bert", "cleo"]
    a = write_rows(tmp_path / "a.jsonl", [rollout(n, 0, float(n), uuid=name) for n, name in enumerate(names)])
    b = write_rows(
        tmp_path / "b.jsonl", [rollout(n, 0, float(2 - n), uuid=name) for n, name in enumerate(reversed(names))]
    )
    assert row_of(a, b).scored.lost == 1
    assert row_of(a, b, key="uuid").scored.lost == 0
    other = write_rows(tmp_path / "c.jsonl", [rollout(0, 0, 1.0, uuid="dora")])
    with pytest.raises(DataError, match=r"no task is also in .* \(anna, bert, cleo … and dora …\)"):
        compare([a, other], Selection(key="uuid"))


def test_unusable_rollouts_are_reported_with_their_place(tmp_path):
    good = write_run(tmp_path / "good.jsonl", HALF)
    cases = {
        "empty": ([], "no rollouts"),
        "twice": ([rollout(3, 1, 1.0), rollout(4, 1, 1.0), rollout(3, 1, 0.0)], "rollout 3:1 of mcqa_simple_agent"),
        "foreign": ([{"reward": 1.0}], ":1: _ng_task_index is missing"),
        "listed": ([{"reward": 1.0, "_ng_task_index": [1]}], ":1: _ng_task_index is list"),
    }
    for name, (rows, problem) in cases.items():
        with pytest.raises(DataError, match=problem):
            compare([good, write_rows(tmp_path / f"{name}.jsonl", rows)])
    (tmp_path / "torn.jsonl").write_text('{"reward": 1.0, "_ng_ta')
    with pytest.raises(DataError, match=r"torn.jsonl:1:\d+: not valid JSON"):
        compare([good, tmp_path / "torn.jsonl"])


def test_repeats_show_the_noise_of_sampling(tmp_path):
    a, b = write_run(tmp_path / "a.jsonl", HALF), write_run(tmp_path / "b.jsonl", BETTER)
    # Variance 0.5 of each task in A, 0.5 of 28 tasks in B, with two repeats of 40 tasks.
    expected = 1.96 * ((0.5 / 2 + 0.5 * 28 / 40 / 2) / 40) ** 0.5
    assert row_of(a, b).scored.noise == pytest.approx(expected, abs=1e-4)
    single = write_run(tmp_path / "c.jsonl", [[1.0]] * 40)
    assert row_of(a, single).scored.noise is None
