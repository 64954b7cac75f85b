"""Gates and waivers: their grammar, and what they name."""

from __future__ import annotations

from datetime import date

import pytest

from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.comparison import Selection, compare
from nemo_gym.evaluation.differences import Bounds
from nemo_gym.evaluation.gates import decide, parse_gate
from nemo_gym.evaluation.waivers import read_waivers, waiver_of
from tests.each_case import each_case
from tests.evaluation.runs import rollout, write_rows

WAIVER = "- {name: june, gate: 'mcqa.accuracy>=-0.01', until: 2030-06-30, reason: ticket 17}\n"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    paths = []
    for name, gain in (("a", 0.0), ("b", 1.0)):
        rows = [rollout(task, 0, gain, "mcqa_simple_agent") for task in range(20)]
        rows += [rollout(task, 0, 1.0, "math_easy") for task in range(20)]
        rows += [rollout(task, 0, 1.0 - gain, "math_hard", accuracy=gain) for task in range(20)]
        paths.append(write_rows(folder / f"{name}.jsonl", rows))
    (found,) = compare(paths, Selection(by="subject"))
    return found


@each_case(
    ("text", "parts"),
    [
        ("reward >= 0", (None, None, "reward", ">=", 0.0)),
        ("mcqa.accuracy>=-0.01", ("mcqa", None, "accuracy", ">=", -0.01)),
        (" mcqa[number theory].pass@8 > 1e-3 ", ("mcqa", "number theory", "pass@8", ">", 0.001)),
        ("a.b.output_tokens < 50", ("a.b", None, "output_tokens", "<", 50.0)),
        ("overall.reward <= .5", ("overall", None, "reward", "<=", 0.5)),
    ],
)
def test_gates_are_parsed(text, parts):
    assert parse_gate(text).condition == parts


@each_case(
    ("text", "problem"),
    [
        ("mcqa.accuracy", "column 14: a comparison"),
        ("mcqa.accuracy => 1", "column 15: expected >=, >, <= or <, found '=>'"),
        ("mcqa.accuracy == 1", "column 15: .* found '=='"),
        ("mcqa.accuracy >= 1%", "column 18: expected a number such as -0.01, found '1%'"),
        ("mcqa.accuracy >= ", "column 18: expected a number"),
        ("mcqa.accuracy >= inf", "column 18: the limit must be finite"),
        ("mcqa[x.accuracy >= 1", "column 1: expected METRIC, AGENT.METRIC or"),
        (">= 1", "column 1: expected METRIC"),
    ],
)
def test_grammar_errors_name_the_column(text, problem):
    with pytest.raises(UsageError, match=problem):
        parse_gate(text)


@each_case(
    ("text", "bounds", "verdict"),
    [
        ("reward >= 0", (0.0, 1.0), "holds"),
        ("reward > 0", (0.0, 1.0), "undecided"),
        ("reward >= 0", (-0.1, 1.0), "undecided"),
        ("reward >= 0", (-0.2, -0.1), "violated"),
        ("reward <= 5", (-0.2, 5.0), "holds"),
        ("reward < 5", (5.0, 6.0), "violated"),
    ],
)
def test_the_whole_interval_decides(text, bounds, verdict):
    assert parse_gate(text).verdict(Bounds(*bounds)) == verdict


@each_case(
    ("text", "verdict"),
    [
        ("mcqa.accuracy > 0.5", "holds"),
        ("math_hard.reward > 0", "violated"),
        ("math_hard.accuracy > 0.5", "holds"),
        ("math_easy.reward >= -0.3", "holds"),
        ("mcqa[algebra].reward > 0.3", "holds"),
        ("reward >= -0.5", "holds"),
        ("math_easy.reward >= 0", "undecided"),
        ("mcqa.output_tokens >= -5", "holds"),
    ],
)
def test_gates_find_agents_and_metrics(comparison, text, verdict):
    (decision,) = decide([parse_gate(text)], [comparison])
    assert decision.verdict == verdict


@each_case(
    ("text", "problem"),
    [
        ("math.reward > 0", "'math' begins the names of 2 agents. Agents: math_easy, math_hard"),
        ("mcqq.reward > 0", "'mcqq' is not an agent of both runs. Agents: math_easy"),
        ("mcqa[arithmetic].reward > 0", "no subset 'arithmetic'. Subsets: algebra, geometry"),
        ("mcqa.rewart > 0", "has the metric 'rewart' in both runs. Did you mean 'reward'"),
    ],
)
def test_unknown_names_are_reported(comparison, text, problem):
    with pytest.raises(UsageError, match=problem):
        decide([parse_gate(text)], [comparison])


def test_several_gates_are_decided_on_wider_intervals(comparison):
    gates = [parse_gate(f"math_easy.reward >= -0.{digit}") for digit in (1, 2, 3, 4)]
    one, many = decide(gates[:1], [comparison]), decide(gates, [comparison])
    assert one[0].level == pytest.approx(0.95)
    assert [each.level for each in many] == [pytest.approx(1 - 0.05 / 4)] * 4
    assert many[0].bounds.low < one[0].bounds.low
    assert (one[0].verdict, one[0].tasks_needed) == ("undecided", pytest.approx(32, abs=1))


def test_waivers_cover_their_gate_until_their_day(tmp_path):
    path = tmp_path / "waivers.yaml"
    path.write_text(WAIVER)
    waivers, gate = read_waivers(path), parse_gate("mcqa.accuracy >= -0.01")
    assert waiver_of(gate, waivers, date(2030, 6, 30)) == waivers[0]
    assert waiver_of(gate, waivers, date(2030, 7, 1)) is None
    assert waiver_of(parse_gate("mcqa.accuracy >= -0.02"), waivers, date(2030, 1, 1)) is None


@each_case(
    ("text", "problem"),
    [
        ("mcqa: 1", "not a list of waivers. Write a list"),
        ("- {name: x", "cannot be read as YAML"),
        (WAIVER + "- {name: july}", "waiver 2: gate"),
        (WAIVER.replace("2030-06-30", "soon"), "waiver 1: until"),
        (WAIVER.replace(">=", "=>"), "waiver 1: gate 'mcqa.accuracy=>-0.01': column 14"),
        (WAIVER.replace("reason", "because"), "waiver 1: .*because: unknown setting"),
        (WAIVER + WAIVER, "two waivers have the name 'june'"),
    ],
)
def test_wrong_waivers_name_file_and_entry(tmp_path, text, problem):
    path = tmp_path / "waivers.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=f"{path}: .*{problem}"):
        read_waivers(path)
