"""Rows from generators: which, how many, always the same ones, and what is wrong with an order."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from resources_servers.reasoning_gym.generate import plain
from resources_servers.reasoning_gym.prepare import Generator, main, prepare, read_mixture
from resources_servers.reasoning_gym.scoring import is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra 'reasoning-gym' is not installed")

UNSTEADY = ["isomorphic_strings", "word_ladder", "list_functions", "ransom_note", "polynomial_multiplication"]
"""They go through sets, or draw from what all of Python draws from."""


def test_the_same_seed_makes_the_same_rows_and_weights_decide(tmp_path):
    generators = [Generator(name=name) for name in UNSTEADY]
    generators.append(Generator(name="chain_sum", weight=20, config={"min_terms": 3, "max_terms": 3}))
    with ThreadPoolExecutor() as two:
        first, again = two.map(lambda name: prepare(tmp_path / name, generators, 200, 3), ("a.jsonl", "b.jsonl"))
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


def test_the_command_tells_a_generator_that_there_is_not_and_writes_nothing(tmp_path, capsys):
    output = tmp_path / "rows.jsonl"
    assert main(["--generator", "sudoko", "--output", str(output)]) == 1
    assert capsys.readouterr().err.startswith("reasoning-gym has no generator 'sudoko'. Did you mean 'sudoku'")
    assert not output.exists()


@pytest.mark.parametrize(
    ("generators", "count", "told"),
    [
        ([], 0, "--count 0: at least one row is needed"),
        ([Generator(name="maze"), Generator(name="maze")], 1, "maze: stands twice"),
        ([Generator(name="maze", config={"seed": 1})], 1, r"maze: config\.seed: is set by --seed"),
        ([Generator(name="maze", config={"size": 1})], 1, r"maze: config\.size: is set by --count"),
        ([Generator(name="maze", config={"min_dist": {1}})], 1, "maze: config: a row cannot keep it"),
        ([Generator(name="maze", config={"min_dist": float("nan")})], 1, "maze: config: a row cannot keep it"),
    ],
)
def test_an_order_that_cannot_be_met_is_told_at_once(tmp_path, generators, count, told):
    with pytest.raises(DataError, match=told):
        prepare(tmp_path / "rows.jsonl", generators, count)


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
def test_a_mixture_is_json_or_yaml_in_a_file_or_on_the_command_line(tmp_path, text):
    path = tmp_path / "mixture.yaml"
    path.write_text(text)
    assert read_mixture(str(path)) == MAZES
    if text[0] in "[{":
        assert read_mixture(text) == MAZES


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- name: maze\n  weight: [\n", ":3: not valid YAML"),
        ("[]", ": datasets: List should have at least 1 item"),
        ("", ": : Input should be a valid dictionary"),
        ("- weight: 1\n", r": datasets\.0\.name: Field required"),
        ("- name: maze\n  weight: 0\n", r": datasets\.0\.weight: Input should be greater than 0"),
        ("- name: maze\n  wieght: 1\n", r": datasets\.0\.wieght: Extra inputs are not permitted"),
    ],
)
def test_a_mixture_of_another_shape_is_told_with_its_place(tmp_path, text, told):
    path = tmp_path / "mixture.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=told) as failure:
        read_mixture(str(path))
    assert str(failure.value).startswith(str(path))


def test_a_mixture_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_mixture(str(tmp_path / "none.yaml"))


def test_a_generator_process_that_breaks_is_told(tmp_path, monkeypatch):
    # Of the package only its name is there.
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text("raise RuntimeError('half of it is missing')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(DataError, match="ended without an answer: RuntimeError: half of it is missing"):
        prepare(tmp_path / "rows.jsonl", MAZES, 1)
    assert os.listdir(tmp_path) == ["reasoning_gym"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({1: (2, {3, 1})}, {"1": [2, [1, 3]]}),
        ([2**63 - 1, 2**63, -(2**70)], [2**63 - 1, str(2**63), str(-(2**70))]),
        ([True, None, 0.5, "x", -3], [True, None, 0.5, "x", -3]),
        (1 + 2j, "(1+2j)"),
    ],
)
def test_values_that_json_cannot_carry_are_written_as_it_can(value, written):
    assert plain(value) == written
