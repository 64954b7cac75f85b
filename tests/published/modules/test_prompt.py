"""`nemo_gym.prompt`, as used by judges and data scripts of published folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_gym.jsonl import read_rows, write_rows
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.prompt import (
    MaterializePromptsConfig,
    PromptConfig,
    apply_prompt_to_row,
    fill_prompt,
    load_prompt_config,
    materialize_prompts,
    validate_prompt_compatibility,
)


@pytest.fixture
def prompt_file(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "benchmarks" / "sums" / "prompts" / "default.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("system: Be brief.\nuser: |-\n  {question} Answer as {{x: …}}.\n", encoding="utf-8")
    return "benchmarks/sums/prompts/default.yaml"


def test_prompt_becomes_the_input_of_a_request(prompt_file):
    messages = fill_prompt(load_prompt_config(prompt_file), {"question": "2 + 2?", "unused": 1})
    params = NeMoGymResponseCreateParamsNonStreaming(input=messages)
    assert params.input == [
        NeMoGymEasyInputMessage(role="system", content="Be brief."),
        NeMoGymEasyInputMessage(role="user", content="2 + 2? Answer as {x: …}."),
    ]


def test_prompt_path_may_be_relative_or_absolute(prompt_file):
    prompt = load_prompt_config(prompt_file)
    assert prompt == PromptConfig(system="Be brief.", user="{question} Answer as {{x: …}}.")
    assert load_prompt_config(Path(prompt_file).resolve()) == prompt
    assert load_prompt_config(prompt_file) is prompt
    load_prompt_config.cache_clear()
    assert load_prompt_config(prompt_file) is not prompt


def test_system_message_is_optional():
    assert fill_prompt(PromptConfig(user="{q}", system=None), {"q": "Hi"}) == [{"role": "user", "content": "Hi"}]


def test_missing_prompt_field_lists_available_fields():
    with pytest.raises(KeyError, match=r"question.*answer, task"):
        fill_prompt(PromptConfig(user="{question}"), {"task": 1, "answer": 2})


def test_row_keeps_its_other_fields():
    row = {"q": "Hi", "responses_create_params": {"temperature": 0.1}}
    assert apply_prompt_to_row(row, PromptConfig(user="{q}")) == {
        "q": "Hi",
        "responses_create_params": {"temperature": 0.1, "input": [{"role": "user", "content": "Hi"}]},
    }


def test_rows_with_own_input_are_rejected():
    rows = [{"q": 1}, {"q": 2, "responses_create_params": {"input": "mine"}}]
    with pytest.raises(ValueError, match=r"rows 2\b"):
        validate_prompt_compatibility(rows, PromptConfig(user="{q}"))


def test_rows_of_a_file_get_their_prompts(tmp_path):
    source, made = tmp_path / "rows.jsonl", tmp_path / "made" / "rows.jsonl"
    write_rows(source, [{"q": "a", "expected": 1}, {"q": "b", "expected": 2}])
    materialize_prompts(str(source), PromptConfig(user="Say {q}."), str(made))
    assert list(read_rows(made)) == [
        {
            "q": q,
            "expected": expected,
            "responses_create_params": {"input": [{"role": "user", "content": f"Say {q}."}]},
        }
        for q, expected in (("a", 1), ("b", 2))
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"q": "a"}, {"other": "b"}], r"rows\.jsonl:2: the prompt uses 'q'"),
        ([{"q": "a", "responses_create_params": {"input": []}}], "already contained"),
    ],
)
def test_file_is_written_atomically(tmp_path, rows, expected):
    source, made = tmp_path / "rows.jsonl", tmp_path / "made.jsonl"
    write_rows(source, rows)
    with pytest.raises(ValueError, match=expected):
        materialize_prompts(source, PromptConfig(user="{q}"), made)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_command_parameters_have_published_names():
    assert list(MaterializePromptsConfig.model_fields) == ["input_jsonl_fpath", "prompt_config", "output_jsonl_fpath"]
    assert all(field.is_required() for field in MaterializePromptsConfig.model_fields.values())
