"""Tests of `ng eval compare`: what it prints, and its exit code."""

from __future__ import annotations

import orjson
import pytest

from tests.evaluation.runs import failure, rollout, write_rows, write_run

pytestmark = pytest.mark.slow

A = [[1.0, 0.0]] * 40
B = [[1.0, 1.0]] * 10 + [[1.0, 0.0]] * 28 + [[0.0, 0.0]] * 2
KEY = ("--key", "_ng_task_index")
"""Pairs the tasks of runs with other input files."""
WAIVER = "- {name: june, gate: 'mcqa.reward > 0.5', until: %s, reason: ticket 17}\n"


def record(**changes):
    return {
        "started_at": "2030-01-01T00:00:00+00:00", "command": ["ng"], "pid": 1, "host": "here",
        "versions": {"nemo_gym": "1.0"}, "policy_model_name": "small", "config_hash": "same", "models": {},
        "outcomes": {"planned": 80, "scored": 80, "kept": 0, "failed": {}, "unresolved": 0, "repeated_attempts": 0},
        "input": {"path": "data/test.jsonl", "sha256": "0" * 64, "bytes": 9}, "prompt": None,
        "settings": {"responses_create_params": {"temperature": 0.5}, "num_repeats": 2}, **changes,
    }  # fmt: skip


@pytest.fixture(scope="module")
def place(shared_workplace):
    folder = shared_workplace.folder
    (folder / "step=1").mkdir()
    write_run(folder / "a.jsonl", A)
    write_run(folder / "b.jsonl", B)
    write_run(folder / "step=1/c.jsonl", A)
    write_rows(folder / "b_failures.jsonl", [failure(3, 2)])
    (folder / "a_run.json").write_bytes(orjson.dumps(record()))
    changed = record(
        policy_model_name="large", versions={"nemo_gym": "1.1"},
        settings={"responses_create_params": {"temperature": 1.0}, "num_repeats": 2},
        input={"path": "data/new.jsonl", "sha256": "1" * 64, "bytes": 9},
        prompt={"path": "prompts/new.yaml", "sha256": "2" * 64, "bytes": 9},
    )  # fmt: skip
    (folder / "b_run.json").write_bytes(orjson.dumps(changed))
    return shared_workplace


def compare(place, *words):
    return place.run("ng", "eval", "compare", *words)


def test_a_table_shows_the_differences(place):
    finished = compare(place, "a.jsonl", "b.jsonl", "--by", "subject")
    assert (finished.code, finished.err) == (0, "")
    lines = [line.split() for line in finished.out.splitlines()]
    assert ["all", "reward", "0.500", "0.600", "+0.100"] in [words[:5] for words in lines]
    assert {words[0] for words in lines if "reward" in words[1:2]} == {"all", "algebra", "geometry"}
    for text in (
        "mcqa_simple_agent: B is higher than A (reward +0.100, 95% interval +0.0",
        "failed = 0",
        "Failed rollouts: A 0 of 80; B 1 of 81 (1 timeout).",
        "40 tasks show a true reward difference of 0.",
        "Sampling alone makes equal models differ by up to 0.",
    ):
        assert text in finished.out


def test_agents_without_scored_rollouts_are_named(place):
    everything = [rollout(task, 0, 0.8, agent) for agent in ("math", "quiz") for task in range(20)]
    write_rows(place.folder / "both.jsonl", everything)
    write_rows(place.folder / "half.jsonl", everything[20:])
    write_rows(place.folder / "half_failures.jsonl", [failure(task, 0, agent="math") for task in range(20)])
    finished = compare(place, "both.jsonl", "half.jsonl", "--gate", "math.reward >= -0.1")
    assert finished.code == 3
    for text in (
        "math: with 0 for failed rollouts, B is lower than A (reward −0.800, ",
        "overall: no difference between A and B is shown (reward 0.000, ",
        "; with 0 for failed rollouts, B is lower than A (reward −0.400, ",
        "✗ math.reward >= -0.1: violated, −0.800, ",
    ):
        assert text in finished.out
    warning = "No task of math has scored rollouts in both runs. Only the rows 'failed = 0' include math."
    assert finished.out.count(warning) == 2
    found = orjson.loads(compare(place, "both.jsonl", "half.jsonl", "--json").out)
    row = found["comparisons"][0]["rows"][0]
    assert (row["agent"], row["tasks"], row["difference"], row["failed_as_zero"]["b"]) == ("math", 0, None, 0.0)


def test_differences_of_the_setup_are_shown(place):
    out = compare(place, "a.jsonl", "b.jsonl").out
    assert "\n   model differs: policy_model_name small → large\n" in out
    for text in (
        "data differs: data/test.jsonl (sha256 000000000000) → data/new.jsonl (sha256 111111111111). If the order "
        "of the tasks differs, pair them with --key",
        "prompt differs: none → prompts/new.yaml (sha256 222222222222)",
        "sampling differs: temperature 0.5 → 1.0",
        "version differs: nemo_gym 1.0 → 1.1",
    ):
        assert f"   warning: {text}\n" in out
    assert "warning: step=1/c_run.json is missing" in compare(place, "a.jsonl", "step=1/c.jsonl").out


def test_several_runs_are_compared_with_the_first(place):
    out = compare(place, "a.jsonl", "b.jsonl", "step=1/c.jsonl", "--gate", "reward >= -0.5").out
    assert "C: step=1/c.jsonl" in out
    assert "no difference between A and C is shown (reward 0.000, 95% interval" in out
    assert "✓ reward >= -0.5 in step=1/c.jsonl: holds" in out


def test_json_has_everything(place):
    finished = compare(place, "a.jsonl", "b.jsonl", "--json", "--gate", "mcqa.accuracy > 0.5", "--gate", "reward > -1")
    found = orjson.loads(finished.out)
    assert finished.code == 3
    assert (found["gates_hold"], [gate["verdict"] for gate in found["gates"]]) == (False, ["violated", "holds"])
    (comparison,) = found["comparisons"]
    assert comparison["agents"][0]["b"] == {"scored": 80, "failed": 1, "causes": {"timeout": 1}}
    row = comparison["rows"][0]
    assert (row["metric"], row["won"], row["lost"], row["unchanged"]) == ("reward", 10, 2, 28)
    assert row["most_lost"][0] == {"task": 38, "a": 0.5, "b": 0.0}
    assert row["failed_as_zero"]["difference"] < row["difference"]


def test_markdown_is_a_table_with_gates(place):
    out = compare(place, "a.jsonl", "b.jsonl", "--markdown", "--gate", "reward > -1").out
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {10}
    assert table[1].startswith("| :-- | --: |")
    assert "**mcqa\\_simple\\_agent: B is higher than A" in out
    assert "- ✓ reward \\> -1: holds" in out


def test_violated_gates_exit_with_three(place):
    assert compare(place, "a.jsonl", "b.jsonl", *KEY, "--gate", "mcqa.reward >= -0.05").code == 0
    finished = compare(place, "a.jsonl", "b.jsonl", "--gate", "mcqa.reward > 0.5")
    assert finished.code == 3
    assert "✗ mcqa.reward > 0.5: violated, +0.100" in finished.out
    undecided = compare(place, "a.jsonl", "step=1/c.jsonl", "--gate", "reward > -0.01")
    assert undecided.code == 3
    assert "? reward > -0.01: undecided" in undecided.out
    assert "tasks would decide it" in undecided.out


@pytest.mark.parametrize(
    ("b", "words", "reason"),
    [
        (
            "b.jsonl",
            (),
            "the input files differ: data/test.jsonl and data/new.jsonl. Pair the tasks by",
        ),
        ("step=1/c.jsonl", (), "step=1/c_run.json missing, so the tasks may be different ones."),
        ("other.jsonl", KEY, "the agents differ: mcqa_simple_agent and quiz_agent."),
        ("few.jsonl", KEY, "only 35 of 40 tasks are in both runs (87.5%, less than 95.0%)."),
        ("many.jsonl", KEY, "only 40 of 60 tasks are in both runs (66.7%, less than 95.0%)."),
        (
            "mute.jsonl",
            KEY,
            "mute.jsonl: no answer was recognised in 80 of 80 rollouts, so its rewards",
        ),
    ],
)
def test_no_gate_holds_on_incomparable_runs(place, b, words, reason):
    folder = place.folder
    write_run(folder / "other.jsonl", A, agent="quiz_agent")
    write_run(folder / "few.jsonl", A[:35])
    write_run(folder / "many.jsonl", [*A, *A[:20]])
    write_run(folder / "mute.jsonl", A, extracted_answer=None)
    finished = compare(place, "a.jsonl", b, *words, "--gate", "reward >= -1")
    assert finished.code == 3
    assert reason in finished.out
    report = orjson.loads(compare(place, "a.jsonl", b, *words, "--gate", "reward >= -1", "--json").out)
    assert report["gates_hold"] is False
    assert reason.rstrip(".") in report["comparisons"][0]["obstacles"][0]


def test_least_coverage_and_some_answers_are_enough(place):
    write_run(place.folder / "few.jsonl", A[:35])
    rows = [rollout(task, 0, 1.0, extracted_answer="a" if task else "") for task in range(40)]
    write_rows(place.folder / "terse.jsonl", rows)
    few = compare(place, "a.jsonl", "few.jsonl", *KEY, "--min-coverage", "0.85", "--gate", "reward >= -1")
    terse = compare(place, "a.jsonl", "terse.jsonl", *KEY, "--gate", "reward >= -1")
    assert (few.code, terse.code) == (0, 0)


def test_a_waiver_excuses_a_gate_until_its_day(place):
    place.write("valid.yaml", WAIVER % "2999-12-31")
    place.write("expired.yaml", WAIVER % "2001-12-31")
    words = ("a.jsonl", "b.jsonl", *KEY, "--gate", "mcqa.reward > 0.5", "--waivers")
    waived = compare(place, *words, "valid.yaml")
    assert (waived.code, waived.err) == (0, "")
    assert "Waived by 'june' until 2999-12-31: ticket 17" in waived.out
    expired = compare(place, *words, "expired.yaml")
    assert expired.code == 3
    assert expired.err.startswith("Error: expired.yaml: the waiver 'june' expired on 2001-12-31")


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("a.jsonl",), 2, "two or more rollout files are needed, got 1"),
        (("a.jsonl", "missing.jsonl"), 1, "missing.jsonl: cannot be read (No such file or directory)"),
        (("a.jsonl", "b.jsonl", "--gate", "reward => 0"), 2, "column 8: expected >=, >, <= or <, found '=>'"),
        (("a.jsonl", "b.jsonl", "--waivers", "none.yaml"), 1, "file 'none.yaml' not found"),
        (("a.jsonl", "b.jsonl", "--metric", "rewart"), 1, "the metric 'rewart'"),
    ],
)
def test_mistakes_are_one_line(place, words, code, problem):
    finished = compare(place, *words)
    assert finished.code == code
    assert problem in finished.err
    assert (finished.out, finished.err.count("\n")) == ("", 1)


def test_missing_numpy_names_the_extra(place):
    place.write("shadow/numpy.py", "raise ImportError('not here')\n")
    finished = place.run("ng", "eval", "compare", "a.jsonl", "b.jsonl", PYTHONPATH=str(place.folder / "shadow"))
    assert finished.code == 1
    assert finished.err.strip().endswith("Run: pip install 'nemo-gym[eval]'")


def test_large_runs_are_read_in_parallel(place):
    text = "x" * 300_000
    for name in ("large_a", "large_b"):
        rows = [rollout(task, 0, 1.0, text=text) for task in range(110)]
        write_rows(place.folder / f"{name}.jsonl", rows)
    found = orjson.loads(compare(place, "large_a.jsonl", "large_b.jsonl", "--json").out)
    assert found["comparisons"][0]["rows"][0]["tasks"] == 110
    with (place.folder / "large_b.jsonl").open("a") as file:
        file.write("{")
    torn = compare(place, "large_a.jsonl", "large_b.jsonl")
    assert (torn.code, torn.err.count("\n")) == (1, 1)
    assert "large_b.jsonl:111:" in torn.err


def test_waivers_that_match_no_gate_are_named(place):
    place.write("other.yaml", WAIVER.replace("mcqa.reward > 0.5", "mcqa.accuracy > 0.9") % "2999-01-01")
    finished = compare(place, "a.jsonl", "b.jsonl", "--gate", "mcqa.reward > 0.5", "--waivers", "other.yaml")
    assert finished.code == 3
    assert "the waiver 'june' of 'mcqa.accuracy > 0.9' matches none of the gates: 'mcqa.reward > 0.5'" in finished.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--pass-at", "5"], 1, "--pass-at 5: no task has more than 2 rollouts in both runs"),
        (["--json", "--markdown"], 2, "--json and --markdown: pass only one of them"),
    ],
)
def test_settings_without_effect_are_rejected(place, words, code, message):
    finished = compare(place, "a.jsonl", "b.jsonl", *words)
    assert (finished.code, message in finished.err) == (code, True)
