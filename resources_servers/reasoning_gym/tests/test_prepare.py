"""Rows made from generators by weight and seed, and the messages for wrong orders."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from nemo_gym import DataError, UsageError, run_prepare
from nemo_gym.jsonl import read_rows
from resources_servers.reasoning_gym.generate import plain
from resources_servers.reasoning_gym.prepare import Generator, prepare, read_mixture
from resources_servers.reasoning_gym.scoring import is_installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="the extra 'reasoning-gym' is not installed"),
]

UNSTEADY = ["isomorphic_strings", "word_ladder", "list_functions", "ransom_note", "polynomial_multiplication"]
"""Generators that iterate over sets or use the global random state."""


def test_seed_and_weights_determine_the_rows(tmp_path):
    generators = [{"name": name} for name in UNSTEADY]
    generators.append({"name": "chain_sum", "weight": 20, "config": {"min_terms": 3, "max_terms": 3}})
    order = {"mixture": json.dumps(generators), "count": 200, "seed": 3}
    with ThreadPoolExecutor() as two:
        first, again = two.map(lambda name: prepare(tmp_path / name, **order), ("a.jsonl", "b.jsonl"))
    assert first.read_bytes() == again.read_bytes()
    rows = list(read_rows(first))
    sums = [row for row in rows if row["metadata"]["source_dataset"] == "chain_sum"]
    assert len(rows) == 200
    assert {row["metadata"]["source_dataset"] for row in rows} == {*UNSTEADY, "chain_sum"}
    assert 140 < len(sums) < 180
    assert {row["metadata"]["num_terms"] for row in sums} == {3}
    assert {json.dumps(row["metadata"]["generator_config"]) for row in sums} == {'{"min_terms": 3, "max_terms": 3}'}
    assert not any("generator_config" in row["metadata"] for row in rows if row not in sums)
    for row in rows:
        (message,) = row["responses_create_params"]["input"]
        assert message["content"].startswith(row["question"].strip())
        assert "<answer>" in message["content"]


@pytest.mark.slow
def test_mostly_unusable_questions_still_fill_the_file(tmp_path):
    # Most scrambles of a large cube turn a third layer, and reasoning-gym cannot score the inverse of such a move.
    order = {"mixture": "[{name: rubiks_cube, config: {cube_size: 6}}]", "seed": 1}
    assert len(list(read_rows(prepare(tmp_path / "rows.jsonl", **order, count=100)))) == 100


def test_command_rejects_an_unknown_generator(tmp_path, capsys):
    output = tmp_path / "rows.jsonl"
    with pytest.raises(SystemExit, match="1"):
        run_prepare(prepare, ["--generator", "sudoko", "--output", str(output)])
    assert capsys.readouterr().err.startswith("reasoning-gym has no generator 'sudoko'. Did you mean 'sudoku'")
    assert not output.exists()


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ({"count": 0}, "count: must be at least 1, found 0"),
        ({"generator": ["maze", "maze"]}, "maze: listed twice"),
        ({"mixture": "[{name: maze, config: {seed: 1}}]"}, r"maze: config\.seed: use --seed"),
        ({"mixture": "[{name: maze, config: {size: 1}}]"}, r"maze: config\.size: use --count"),
        ({"mixture": "[{name: maze, config: {min_dist: !!set {1}}}]"}, "maze: config: not JSON"),
        ({"mixture": "[{name: maze, config: {min_dist: .nan}}]"}, "maze: config: not JSON"),
    ],
)
def test_impossible_order_is_rejected(tmp_path, order, problem):
    with pytest.raises(DataError, match=problem):
        prepare(tmp_path / "rows.jsonl", **order)


def test_generators_and_mixture_exclude_each_other(tmp_path):
    with pytest.raises(UsageError, match="--mixture: not allowed with argument --generator"):
        prepare(tmp_path / "rows.jsonl", ["maze"], "[{name: maze}]")


MAZES = [Generator(name="maze", weight=2, config={"min_dist": 5}), Generator(name="ab")]


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "maze", "weight": 2, "config": {"min_dist": 5}}, {"name": "ab"}]',
        '{"datasets": [{"name": "maze", "weight": 2, "config": {"min_dist": 5}}, {"name": "ab"}]}',
        "[{name: maze, weight: 2, config: {min_dist: 5}}, {name: ab}]",
        "datasets:\n- name: maze\n  weight: 2\n  config:\n    min_dist: 5\n- name: ab\n",
        "- {name: maze, weight: 2, config: {min_dist: 5}}\n- name: ab\n",
    ],
)
def test_mixture_may_be_a_file_or_text(tmp_path, text):
    path = tmp_path / "mixture.yaml"
    path.write_text(text)
    assert read_mixture(str(path)) == MAZES
    if text[0] in "[{":
        assert read_mixture(text) == MAZES


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- name: maze\n  weight: [\n", ":3: not valid YAML"),
        ("[]", ": datasets: List should have at least 1 item"),
        ("", ": : Input should be a valid dictionary"),
        ("- weight: 1\n", r": datasets\.0\.name: Field required"),
        ("- name: maze\n  weight: 0\n", r": datasets\.0\.weight: Input should be greater than 0"),
        ("- name: maze\n  wieght: 1\n", r": datasets\.0\.wieght: Extra inputs are not permitted"),
    ],
)
def test_invalid_mixture_is_reported_with_its_place(tmp_path, text, problem):
    path = tmp_path / "mixture.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=problem) as failure:
        read_mixture(str(path))
    assert str(failure.value).startswith(str(path))


def test_missing_mixture_file_is_reported(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_mixture(str(tmp_path / "none.yaml"))


def test_failing_generator_process_is_reported(tmp_path, monkeypatch):
    # A package with the right name that cannot be imported.
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise RuntimeError('half of it is missing')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(DataError, match="process failed: RuntimeError: half of it is missing"):
        prepare(tmp_path / "rows.jsonl", ["maze"], count=1)
    assert os.listdir(tmp_path) == ["reasoning_gym"]


def test_values_are_converted_to_json_types():
    cases = [
        ({1: (2, {3, 1})}, {"1": [2, [1, 3]]}),
        ([2**63 - 1, 2**63, -(2**70)], [2**63 - 1, str(2**63), str(-(2**70))]),
        ([True, None, 0.5, "x", -3], [True, None, 0.5, "x", -3]),
        (1 + 2j, "(1+2j)"),
    ]
    wrong = [(value, written, found) for value, written in cases if (found := plain(value)) != written]
    assert wrong == []
