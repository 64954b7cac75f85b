"""Sampling rollouts for people, and comparing their labels with verdicts."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import orjson
import pytest

from nemo_gym import DataError
from nemo_gym.evaluation.verdicts import choices_for, label_in, verdicts_of
from nemo_gym.jsonl import JsonObject, read_rows, write_rows
from nemo_gym.labelling.agreement_report import agreement_text
from nemo_gym.labelling.judge_variance import gradings_of, judge_variance, majority_agreement
from nemo_gym.labelling.labels import LONGEST_CELL, SampleJob, agreement_with, read_labels, write_sample
from nemo_gym.testing import reply


def rollout(task: int, reward: float, answer: str = "An answer", repeat: int = 0, **fields: object) -> JsonObject:
    return {
        "question": f"Question {task}?",
        "expected_answer": "x",
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "response": reply(answer).model_dump(mode="json"),
        "reward": reward,
        **fields,
    }


def criteria(*met: bool) -> list[JsonObject]:
    return [{"name": name, "weight": 1, "is_met": is_met} for name, is_met in zip(("a", "b"), met, strict=True)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """100 rollouts of 50 tasks, of which a tenth is right."""
    path = tmp_path / "run.jsonl"
    write_rows(path, [rollout(number // 2, float(number % 10 == 0), repeat=number % 2) for number in range(100)])
    return path


def sample(run: Path, size: int = 20, seed: int = 0) -> list[dict[str, str]]:
    path = run.with_name("labels.csv")
    write_sample(SampleJob(run, path, size, seed))
    return sheet(path)


def sheet(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def label(run: Path, rows: list[dict[str, str]], **cells: str) -> Path:
    """Write rows with their labels. `cells` are by column, the same for all rows."""
    path = run.with_name("labels.csv")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, **cells} for row in rows)
    return path


def test_sample_has_equal_shares_of_verdicts(run: Path) -> None:
    drawn = write_sample(SampleJob(run, run.with_name("labels.csv"), 30, 0))
    assert (drawn.all, drawn.drawn) == ({"no": 90, "yes": 10}, {"no": 20, "yes": 10})
    rows = sheet(run.with_name("labels.csv"))
    assert list(rows[0]) == ["rollout", "question", "expected_answer", "answer", "label", "notes"]
    assert len({row["rollout"] for row in rows}) == 30
    tasks = [int(row["question"].split()[1].rstrip("?")) for row in rows]
    assert tasks != sorted(tasks)


def test_sample_prefers_different_tasks(run: Path) -> None:
    times = Counter(row["question"] for row in sample(run, size=40))
    # Both rollouts of a task are wrong, except for every fifth task. 30 of 50 tasks are drawn for wrong answers.
    assert {count for question, count in times.items() if int(question.split()[1].rstrip("?")) % 5} == {1}


def test_seed_decides_the_sample(run: Path) -> None:
    first, same, other = (sample(run, seed=seed) for seed in (0, 0, 1))
    assert first == same != other


def test_small_run_is_sampled_whole(run: Path) -> None:
    assert len(sample(run, size=1000)) == 100


def test_cells_are_safe_in_spreadsheet_programs(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    texts = ["=HYPERLINK(1)", "+1", "-1", "@x", "y" * 100_000, 'a\n"b",;', "<think>no</think>z", "\ud83d"]
    write_rows(path, [rollout(task, 1.0, text) for task, text in enumerate(texts)])
    answers = {row["answer"][:15]: row["answer"] for row in sample(path)}
    assert {"'=HYPERLINK(1)", "'+1", "'-1", "'@x", 'a\n"b",;', "z", "?"} <= answers.keys()
    assert len(answers["y" * 15]) < LONGEST_CELL + 20


def test_criteria_have_their_own_columns(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows = [rollout(task, task % 3 / 2, criteria=criteria(task % 3 > 0, task % 3 > 1)) for task in range(9)]
    write_rows(path, rows)
    drawn = sample(path)
    assert [column for column in drawn[0] if column.startswith("label")] == ["label: a", "label: b"]
    report = agreement_with(path, read_labels(label(path, drawn, **{"label: a": "yes", "label: b": ""})))
    assert list(report.by_name) == ["a"]
    assert report.by_name["a"].accuracy.value == pytest.approx(6 / 9)


def test_tasks_may_have_different_criteria(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_rows(path, [rollout(0, 1.0, criteria=criteria(True, True)), rollout(1, 1.0)])
    drawn = sample(path)
    own = {"t0": {"label: a": "yes", "label: b": "no"}, "t1": {"label": "yes"}}
    chosen = [row | own[row["rollout"][:2]] for row in drawn]
    report = agreement_with(path, read_labels(label(path, chosen)))
    assert {name: each.accuracy.value for name, each in report.by_name.items()} == {"a": 1.0, "b": 0.0, "label": 1.0}
    variance = judge_variance(gradings_of([path, path]), 2)
    assert {name: each.unstable.tasks for name, each in variance.by_name.items()} == {"a": 1, "b": 1, "label": 1}
    with pytest.raises(DataError, match=r"column 'label: a': the grader gave no such verdict on this rollout\. Clear"):
        agreement_with(path, read_labels(label(path, drawn, **{"label: a": "yes"})))


def test_only_verdict_may_be_a_word_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_rows(path, [rollout(task, 1.0, verdict="excellent") for task in range(3)])
    report = agreement_with(path, read_labels(label(path, sample(path), label="excellent")))
    found = report.by_name["label"]
    assert (found.accuracy.value, found.kappa.value) == (1.0, None)
    assert "not defined, as all verdicts and labels are the same" in agreement_text(report)


def test_agreement_is_weighted_by_verdicts(run: Path) -> None:
    report = agreement_with(run, read_labels(label(run, sample(run), label="no")))
    found = report.by_name["label"]
    assert (report.rollouts, report.labelled, report.in_file) == (100, 20, 20)
    assert found.accuracy.value == pytest.approx(0.9)
    assert found.counts == {("yes", "no"): 10, ("no", "no"): 10}
    assert "agreement      90.0 % (95 % interval" in agreement_text(report)


def test_unlabelled_verdicts_are_reported(run: Path) -> None:
    rows = sample(run)
    wrong = {f"Question {task}?" for task in range(50) if task % 5}
    chosen = [{**row, "label": "n" if row["question"] in wrong else ""} for row in rows]
    report = agreement_with(run, read_labels(label(run, chosen)))
    assert report.unlabelled_strata == {"yes": 10}
    assert "leave them out: 'yes' (10)" in agreement_text(report)
    assert "not defined, as all verdicts and labels are the same" in agreement_text(report)


def test_labels_fit_the_rollouts_graded_again(run: Path) -> None:
    labels = read_labels(label(run, sample(run), label="yes"))
    write_rows(run, [{**row, "reward": 1.0} for row in list(read_rows(run))])
    assert agreement_with(run, labels).by_name["label"].accuracy.value == 1.0


def test_bad_labels_name_row_and_column(run: Path) -> None:
    rows = sample(run)
    rows[3]["label"], rows[7]["label"] = "yess", "maybe"
    with pytest.raises(DataError) as caught:
        agreement_with(run, read_labels(label(run, rows)))
    assert str(caught.value) == (
        f"{run.with_name('labels.csv')}: row 5, column 'label': 'yess' is not one of yes, no. Did you mean 'yes'?\n"
        f"{run.with_name('labels.csv')}: row 9, column 'label': 'maybe' is not one of yes, no."
    )


def test_labels_of_another_run_are_rejected(run: Path) -> None:
    path = label(run, sample(run), label="yes")
    write_rows(run, [rollout(task, 1.0, "Another answer") for task in range(100)])
    with pytest.raises(DataError, match=r"row 2, column 'rollout': .* has another answer in .*\.jsonl\. Pass"):
        agreement_with(run, read_labels(path))
    write_rows(run, [rollout(1000, 1.0)])
    with pytest.raises(DataError, match=r"the rollout '.*' is not in .*\.jsonl\. Pass"):
        agreement_with(run, read_labels(path))


def test_unusable_label_files_are_rejected(run: Path) -> None:
    rows = sample(run)
    cases = [
        (rows, "no cell of 'label' is filled in"),
        ([*rows, rows[0]], "row 22, column 'rollout': .* is already in row 2"),
        ([{"rollout": row["rollout"], "labels": "yes"} for row in rows], "column 'label' is missing"),
        ([{"label": "yes"}], "column 'rollout' is missing"),
    ]
    for given, message in cases:
        with pytest.raises(DataError, match=message):
            agreement_with(run, read_labels(label(run, given)))


def test_run_without_rollouts_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match="does not contain scored rollouts"):
        sample(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").write_bytes(orjson.dumps({"reward": 1}))
    with pytest.raises(DataError, match=r"run.jsonl:1: '_ng_task_index' is missing"):
        sample(tmp_path / "run.jsonl")
    write_rows(tmp_path / "run.jsonl", [rollout(7, 1.0) | {"response": None}])
    with pytest.raises(DataError, match="rollout 7:0: the response is missing or not valid"):
        sample(tmp_path / "run.jsonl")


def test_verdicts_and_labels_have_many_forms() -> None:
    assert [verdicts_of({"reward": reward}) for reward in (1, 0.5, 0, None)] == [
        {"label": verdict} for verdict in ("yes", "partly", "no", "no")
    ]
    assert verdicts_of({"reward": 0, "verdict": "not attempted"}) == {"label": "not attempted"}
    assert choices_for(["incorrect"]) == ("correct", "incorrect", "not attempted")
    assert choices_for(["partly"]) == ("yes", "no", "partly")
    assert choices_for(["odd", "even"]) == ("even", "odd")
    labels = [label_in(cell, ("yes", "no")) for cell in ("YES", " 1 ", "True", "n", "0", "not  met", "perhaps")]
    assert labels == ["yes", "yes", "yes", "no", "no", "no", None]
    assert label_in("not_attempted", choices_for(["correct"])) == "not attempted"


def regraded(tmp_path: Path, rewards: list[list[float]]) -> list[Path]:
    """Write one file per grading of the same rollouts."""
    files = [tmp_path / f"judge{number}.jsonl" for number in range(len(rewards))]
    for path, each in zip(files, rewards, strict=True):
        write_rows(path, [rollout(task, reward) for task, reward in enumerate(each) if reward >= 0])
    return files


def test_variance_of_verdicts_and_rewards(tmp_path: Path) -> None:
    files = regraded(tmp_path, [[1, 0, 1, 1], [1, 0, 0, -1]])
    found = judge_variance(gradings_of(files), 2)
    assert (found.rollouts, found.incomplete) == (3, 1)
    assert found.mean_rewards == pytest.approx((2 / 3, 1 / 3))
    assert found.reward_std == pytest.approx((0.5 / 3) ** 0.5)
    stability = found.by_name["label"]
    assert stability.unstable.mean == pytest.approx(1 / 3)
    assert stability.fleiss_kappa == pytest.approx((2 / 3 - 0.5) / 0.5)


def test_ties_disagree_with_people(tmp_path: Path) -> None:
    files = regraded(tmp_path, [[1, 0, 1], [1, 0, 0]])
    labels = read_labels(label(files[0], sample(files[0]), label="yes"))
    found = majority_agreement(gradings_of(files), labels, files[0])["label"]
    assert found.counts == {("yes", "yes"): 1, ("no", "yes"): 1, ("tied", "yes"): 1}


def test_rollouts_without_a_verdict_are_left_out(tmp_path: Path) -> None:
    files = regraded(tmp_path, [[1, 0, 1], [1, 0, 1]])
    labels = read_labels(label(files[0], sample(files[0]), label="yes"))
    gradings = {key: each for key, each in gradings_of(files).items() if key.task < 2}
    assert majority_agreement(gradings, labels, files[0])["label"].pairs == 2


def test_variance_needs_complete_gradings(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of 1 rollout was graded 2 times"):
        judge_variance(gradings_of(regraded(tmp_path, [[1], [-1]])), 2)
