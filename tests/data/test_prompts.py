"""Prompt files: templates that are filled with the fields of a row."""

from __future__ import annotations

import os

import pytest

from nemo_gym import paths
from nemo_gym.data.prompts import (
    PromptConfig,
    apply_prompt_to_row,
    fill_prompt,
    load_prompt_config,
    materialize_prompts,
    validate_prompt_compatibility,
)
from nemo_gym.errors import DataError
from tests.each_case import each_case


def test_prompt_is_read_from_its_file(tmp_path):
    (tmp_path / "prompt.yaml").write_text("\ufeffsystem: |\n  Be brief.\nuser: '{question}'\n", "utf-8")
    prompt = load_prompt_config(str(tmp_path / "prompt.yaml"))
    assert prompt == PromptConfig(system="Be brief.\n", user="{question}")


def test_relative_prompt_path_is_found_in_search_roots(tmp_path, monkeypatch):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.yaml").write_text("user: hello")
    monkeypatch.setenv(paths.EXTRA_ROOTS_ENV_VAR, str(tmp_path))
    assert load_prompt_config("prompts/a.yaml").user == "hello"


def test_edited_prompt_is_read_again(tmp_path):
    path = tmp_path / "prompt.yaml"
    path.write_text("user: before")
    assert load_prompt_config(str(path)).user == "before"
    path.write_text("user: after")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    assert load_prompt_config(str(path)).user == "after"


@each_case(
    ("text", "words"),
    [
        ("system: alone", "user: Field required"),
        ("user: [a, b]", "user: Input should be a valid string"),
        ("", "not a valid prompt"),
        ("just text", "not a valid prompt"),
        ("user: 'a: b", "not readable as UTF-8 YAML"),
        ("user: 'Put it into \\boxed{}.'", "'{}' does not name a field of the row; double each literal brace"),
        ("user: 'Write {0}.'", "does not name a field of the row"),
        ("user: 'An open { brace'", "; double each literal brace: {{ or }}"),
        ("user: fine\nsystem: 'closed }'", "system: Single '}' encountered"),
        ('user: |-\n  Reply with {\n  "answer": 1}', "does not name a field of the row; double each literal brace"),
        ("user: fine\nsytem: misspelled", "'sytem' is not a key of a prompt. Did you mean 'system'?"),
        ("users: misspelled", "'users' is not a key of a prompt. Did you mean 'user'?"),
    ],
)
def test_invalid_prompt_is_reported_with_its_path(tmp_path, text, words):
    path = tmp_path / "prompt.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        load_prompt_config(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


def test_further_keys_of_a_prompt_are_ignored(tmp_path):
    (tmp_path / "prompt.yaml").write_text("user: hello\nlicense: MIT\nusers: 3\n")
    assert load_prompt_config(tmp_path / "prompt.yaml").user == "hello"


def test_missing_prompt_reports_the_searched_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"prompt_config: file 'prompts/none\.yaml' not found in ") as error:
        load_prompt_config("prompts/none.yaml")
    assert str(tmp_path) in str(error.value)


@each_case(
    ("template", "text"),
    [
        ("{question}", "2 + 2?"),
        ("{{question}}", "{question}"),
        ("\\boxed{{{answer}}}", "\\boxed{4}"),
        ("{options[1]}, {meta[level]}", "b, hard"),
        ("no field", "no field"),
        ("{answer:03}", "004"),
    ],
)
def test_fields_are_filled_and_doubled_braces_unescaped(template, text):
    row = {"question": "2 + 2?", "answer": 4, "options": ["a", "b"], "meta": {"level": "hard"}}
    assert fill_prompt(PromptConfig(user=template), row) == [{"role": "user", "content": text}]


def test_braces_in_row_values_are_kept():
    assert fill_prompt(PromptConfig(user="{q}"), {"q": "{x} {{y}}"})[0]["content"] == "{x} {{y}}"


def test_system_message_comes_first():
    messages = fill_prompt(PromptConfig(system="a {x}", user="b {x}"), {"x": 1})
    assert messages == [{"role": "system", "content": "a 1"}, {"role": "user", "content": "b 1"}]


@each_case("template", ["{absent}", "{meta[absent]}", "{question.absent}", "{options[9]}", "{question:d}"])
def test_missing_field_reports_the_available_ones(template):
    with pytest.raises(KeyError, match=r"meta, options, question"):
        fill_prompt(PromptConfig(user=template), {"question": "q", "options": ["a"], "meta": {}})


def test_prompt_keeps_row_and_other_parameters():
    row = {"q": "2 + 2?", "responses_create_params": {"temperature": 0.5}}
    made = apply_prompt_to_row(row, PromptConfig(user="{q}"))
    assert made == {
        "q": "2 + 2?",
        "responses_create_params": {"temperature": 0.5, "input": [{"role": "user", "content": "2 + 2?"}]},
    }
    assert row == {"q": "2 + 2?", "responses_create_params": {"temperature": 0.5}}


def test_rows_with_input_are_reported_by_number():
    rows = [{"q": 1}, {"responses_create_params": {"input": "x"}}, {"responses_create_params": None}]
    prompt = PromptConfig(user="{q}")
    validate_prompt_compatibility([rows[0], rows[2]], prompt)
    with pytest.raises(DataError, match=r"but 1 row already contained responses_create_params\.input \(rows 2\)"):
        validate_prompt_compatibility(rows, prompt)
    with pytest.raises(DataError, match=r"but 30 rows .* \(rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 …\)"):
        validate_prompt_compatibility(rows[1:2] * 30, prompt)


@pytest.mark.parametrize("params", ['"text"', "5", '["input"]'])
def test_request_that_is_no_object_is_reported_with_line(tmp_path, params):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f'{{"q": "a"}}\n{{"q": "a", "responses_create_params": {params}}}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: responses_create_params must be an object, found "):
        materialize_prompts(rows, PromptConfig(user="{q}"), tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
