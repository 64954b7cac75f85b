"""pass@k, majority@k and their spreads, compared with slow but direct definitions."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.metrics import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)
from tests.each_case import each_case


def rollouts(*rewards, **fields):
    return [{"reward": reward, **fields} for reward in rewards]


def answered(*pairs):
    return [{"reward": reward, "answer": answer} for answer, reward in pairs]


def metrics_of(tasks, score_fn=None, answer_key=None):
    return compute_pass_majority_metrics(tasks, score_fn, answer_key).metrics


binary_tasks = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), min_size=1, max_size=5)
graded_tasks = st.lists(
    st.lists(st.floats(min_value=-2, max_value=2, width=32), min_size=1, max_size=6), min_size=1, max_size=5
)
answered_tasks = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "", None]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=7
    ),
    min_size=1,
    max_size=4,
)


@given(binary_tasks)
def test_pass_at_k_matches_enumerated_draws(tasks):
    metrics = metrics_of([rollouts(*rewards) for rewards in tasks])
    for k in range(1, max(map(len, tasks)) + 1):
        chances = [fmean(max(draw) for draw in combinations(task, k)) for task in tasks if len(task) >= k]
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * fmean(chances), abs=1e-9)


@given(graded_tasks)
def test_graded_score_uses_best_of_first_k(tasks):
    tasks = [[0.5, *task] for task in tasks]  # 0.5 ensures that the score is not binary by chance
    metrics = metrics_of([rollouts(*task) for task in tasks])
    for k in range(1, max(map(len, tasks)) + 1):
        best = [max(task[:k]) for task in tasks if len(task) >= k]
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * fmean(best), abs=1e-9)


@given(graded_tasks)
def test_average_of_k_uses_first_k_attempts(tasks):
    metrics = metrics_of([rollouts(*task) for task in tasks])
    for k in range(1, max(map(len, tasks)) + 1):
        means = [fmean(task[:k]) for task in tasks if len(task) >= k]
        assert metrics[f"pass@1[avg-of-{k}]/accuracy"] == pytest.approx(100 * fmean(means), abs=1e-9)


@given(answered_tasks)
def test_majority_is_most_frequent_answer_and_score(tasks):
    metrics = metrics_of([answered(*task) for task in tasks], answer_key="answer")
    for k in range(1, max(map(len, tasks)) + 1):
        expected = []
        for task in (task for task in tasks if len(task) >= k):
            counts = Counter(pair for pair in task[:k] if pair[0])
            most = [score for (_, score), count in counts.items() if count == max(counts.values())]
            expected.append(fmean(most) if most else 0.0)
        assert metrics[f"majority@{k}/accuracy"] == pytest.approx(100 * fmean(expected), abs=1e-9)


@given(graded_tasks)
def test_spread_across_runs_is_deviation_of_averages(tasks):
    metrics, _, _, max_k = compute_pass_majority_metrics([rollouts(*task) for task in tasks])
    averages = [100 * fmean(task[run] for task in tasks if len(task) > run) for run in range(max_k)]
    assert metrics["per_sample_aggregate"] == {"accuracy": pytest.approx(averages, abs=1e-9)}
    for k in range(2, max_k + 1):
        key = f"pass@1[avg-of-{k}]/accuracy"
        assert metrics[f"{key}/std_dev_across_runs"] == pytest.approx(stdev(averages[:k]), abs=1e-6)
        assert metrics[f"{key}/std_err_across_runs"] == pytest.approx(stdev(averages[:k]) / k**0.5, abs=1e-6)


@given(graded_tasks)
def test_average_sample_deviation_is_added_on_request(tasks):
    metrics, scores, names, max_k = compute_pass_majority_metrics([rollouts(*task) for task in tasks])
    before = dict(metrics)
    add_avg_sample_std_dev(metrics, scores, names, max_k)
    added = {key: value for key, value in metrics.items() if key not in before}
    assert added == {
        f"pass@1[avg-of-{k}]/accuracy/avg_sample_std_dev": pytest.approx(
            100 * fmean(stdev(task[:k]) for task in tasks if len(task) >= k), abs=1e-6
        )
        for k in range(2, max_k + 1)
    }


def test_two_tasks_by_hand():
    metrics, scores, names, max_k = compute_pass_majority_metrics([rollouts(1.0, 0.0), rollouts(0.0, 0.0)])
    assert metrics == {
        "pass@1/accuracy": 25.0,
        "pass@2/accuracy": 50.0,
        "pass@1[avg-of-1]/accuracy": 50.0,
        "pass@1[avg-of-2]/accuracy": 25.0,
        "pass@1[avg-of-2]/accuracy/std_dev_across_runs": pytest.approx(1250**0.5),
        "pass@1[avg-of-2]/accuracy/std_err_across_runs": pytest.approx(25.0),
        "per_sample_aggregate": {"accuracy": [50.0, 0.0]},
    }
    assert scores == [[{"accuracy": 1.0}, {"accuracy": 0.0}], [{"accuracy": 0.0}, {"accuracy": 0.0}]]
    assert names == ["accuracy"]
    assert max_k == 2


def test_answer_key_adds_majority_and_no_answer():
    metrics = metrics_of([answered(("4", 1.0), (None, 0.0))], answer_key="answer")
    assert {key for key in metrics if "across_runs" not in key} == {
        "per_sample_aggregate",
        *(f"{family}{k}{end}/{score}" for family, end in (("pass@", ""), ("pass@1[avg-of-", "]"), ("majority@", ""))
          for k in (1, 2) for score in ("accuracy", "no_answer")),
    }  # fmt: skip
    assert metrics["pass@1[avg-of-2]/no_answer"] == 50.0
    assert metrics["majority@2/accuracy"] == 100.0


def test_values_are_not_rounded():
    assert metrics_of([rollouts(1), rollouts(1), rollouts(0)])["pass@1/accuracy"] == 100 * (2 / 3)


def test_booleans_are_binary_scores():
    metrics = metrics_of([rollouts(0, 0)], lambda row: {"ok": row["reward"] == 0})
    assert metrics["pass@1/ok"] == 100.0


def test_one_graded_value_makes_a_score_graded():
    metrics = metrics_of([rollouts(0.0, 1.0), rollouts(0.25, 0.25)])
    assert metrics["pass@1/accuracy"] == 12.5  # from the first attempts only; random draws would give 37.5


def test_scores_come_from_the_function_in_alphabetical_order():
    found = compute_pass_majority_metrics([rollouts(1.0)], lambda row: {"z": row["reward"], "a": 0.0})
    assert found.score_names == ["a", "z"]
    assert found.all_score_dicts == [[{"z": 1.0, "a": 0.0}]]


@each_case("missing", [{}, {"partial": None}, {"partial": float("nan")}])
def test_response_without_a_score_is_skipped(missing):
    tasks = [[{"partial": 0.5}, missing, {"partial": 1.0}]]
    metrics = metrics_of(tasks, lambda row: {"always": 1.0, **row})
    assert metrics["pass@1[avg-of-2]/partial"] == 75.0
    assert "pass@3/partial" not in metrics
    assert metrics["pass@3/always"] == 100.0
    assert metrics["per_sample_aggregate"]["partial"] == [50.0, 100.0]


def test_tied_answers_share_the_majority():
    metrics = metrics_of([answered(("4", 1.0), ("5", 0.0), ("5", 0.0), ("4", 1.0))], answer_key="answer")
    assert [metrics[f"majority@{k}/accuracy"] for k in (1, 2, 3, 4)] == [100.0, 50.0, 0.0, 50.0]


def test_missing_answers_earn_no_majority():
    metrics = metrics_of([answered((None, 1.0), ("", 1.0))], answer_key="answer")
    assert metrics["majority@2/accuracy"] == 0.0
    assert metrics["pass@1[avg-of-2]/no_answer"] == 100.0


@each_case("answer", [0, False, ["B"], {"b": 2, "a": [1]}])
def test_any_json_value_can_be_an_answer(answer):
    metrics = metrics_of([answered((answer, 1.0), (answer, 1.0), ("x", 0.0))], answer_key="answer")
    assert metrics["majority@3/accuracy"] == 100.0
    assert metrics["pass@3/no_answer"] == 0.0


def test_no_tasks_yield_no_metrics():
    assert compute_pass_majority_metrics([]) == ({}, [], [], 0)


def test_pass_at_k_is_exact_for_many_attempts():
    metrics = metrics_of([rollouts(*[0.0] * 999, 1.0)])
    assert metrics["pass@500/accuracy"] == pytest.approx(50.0, abs=1e-9)
    assert metrics["pass@1000/accuracy"] == 100.0


def test_subsets_have_metrics_prefixed_with_their_name():
    tasks = [rollouts(1.0, level="easy"), rollouts(0.0, level="hard"), rollouts(1.0, level="hard"), rollouts(1.0)]
    subsets = compute_subset_metrics([*tasks, rollouts(1.0, level=""), rollouts(1.0, level=0)], "level")
    of_levels = {"easy": metrics_of(tasks[:1]), "hard": metrics_of(tasks[1:3])}
    assert subsets == {
        f"{level}/{key}": value
        for level, metrics in of_levels.items()
        for key, value in metrics.items()
        if key != "per_sample_aggregate"
    }
    assert subsets["hard/pass@1/accuracy"] == 50.0


def test_subsets_use_score_function_and_answer_key():
    tasks = [[{"level": 3, "answer": "x", "good": True}, {"level": 3, "answer": "x", "good": True}]]
    subsets = compute_subset_metrics(tasks, "level", lambda row: {"good": row["good"]}, "answer")
    assert subsets["3/majority@2/good"] == 100.0


AGENT_METRICS = {
    "mean/reward": 0.5,
    "pass@1/accuracy": 1.0,
    "pass@2/accuracy": 2.0,
    "pass@10/accuracy": 10.0,
    "pass@10/no_answer": 11.0,
    "pass@1[avg-of-2]/accuracy": 12.0,
    "pass@1[avg-of-10]/accuracy": 13.0,
    "pass@1[avg-of-10]/accuracy/std_dev_across_runs": 14.0,
    "pass@1[avg-of-10]/accuracy/std_err_across_runs": 15.0,
    "pass@1[avg-of-10]/accuracy/avg_sample_std_dev": 16.0,
    "majority@4/accuracy": 17.0,
    "hard/pass@12/accuracy": 18.0,
}


@each_case(
    ("pattern", "choice", "keys"),
    [
        ("pass@{k}", {}, {"pass@10/accuracy", "pass@10/no_answer"}),
        ("pass@{k}", {"score_names": ["accuracy"]}, {"pass@10/accuracy"}),
        ("pass@{k}", {"exclude_names": ["no_answer"]}, {"pass@10/accuracy"}),
        ("pass@1[avg-of-{k}]", {}, {"pass@1[avg-of-10]/accuracy"}),
        ("majority@{k}", {}, {"majority@4/accuracy"}),
        ("hard/pass@{k}", {}, {"hard/pass@12/accuracy"}),
        ("best@{k}", {}, set()),
    ],
)
def test_entries_of_the_largest_k_are_selected(pattern, choice, keys):
    assert highest_k_metrics(AGENT_METRICS, pattern, **choice) == {key: AGENT_METRICS[key] for key in keys}


def test_pattern_without_k_is_rejected():
    with pytest.raises(ValueError, match=r"'pass@3' does not contain '{k}'"):
        highest_k_metrics(AGENT_METRICS, "pass@3")
