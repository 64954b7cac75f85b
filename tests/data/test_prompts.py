"""Prompt files: templates whose named fields are filled from a row."""

from __future__ import annotations

import os

import pytest

from nemo_gym import paths
from nemo_gym.data.prompts import (
    PromptConfig,
    apply_prompt_to_row,
    fill_prompt,
    load_prompt_config,
    validate_prompt_compatibility,
)
from nemo_gym.errors import DataError


def test_a_prompt_is_read_from_its_file(tmp_path):
    (tmp_path / "prompt.yaml").write_text("\ufeffsystem: |\n  Be brief.\nuser: '{question}'\n", "utf-8")
    prompt = load_prompt_config(str(tmp_path / "prompt.yaml"))
    assert prompt == PromptConfig(system="Be brief.\n", user="{question}")


def test_a_relative_path_is_looked_for_in_the_search_roots(tmp_path, monkeypatch):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.yaml").write_text("user: hello")
    monkeypatch.setenv(paths.EXTRA_ROOTS_ENV_VAR, str(tmp_path))
    assert load_prompt_config("prompts/a.yaml").user == "hello"


def test_a_prompt_that_was_edited_is_read_anew(tmp_path):
    path = tmp_path / "prompt.yaml"
    path.write_text("user: before")
    assert load_prompt_config(str(path)).user == "before"
    path.write_text("user: after")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    assert load_prompt_config(str(path)).user == "after"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("system: alone", "user: Field required"),
        ("user: [a, b]", "user: Input should be a valid string"),
        ("", "not a prompt"),
        ("just text", "not a prompt"),
        ("user: 'a: b", "cannot be read"),
        ("user: 'Put it into \\boxed{}.'", "'{}' names no field of the row; braces that stand for themselves"),
        ("user: 'Write {0}.'", "names no field of the row"),
        ("user: 'An open { brace'", "a brace that stands for itself is written twice, {{ or }}"),
        ("user: fine\nsystem: 'closed }'", "system: Single '}' encountered"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_told_with_its_path(tmp_path, text, words):
    path = tmp_path / "prompt.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        load_prompt_config(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


def test_a_missing_prompt_is_told_with_the_places_searched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"prompt_config: no file 'prompts/none\.yaml' in ") as error:
        load_prompt_config("prompts/none.yaml")
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
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
def test_fields_are_filled_and_doubled_braces_are_braces(template, text):
    row = {"question": "2 + 2?", "answer": 4, "options": ["a", "b"], "meta": {"level": "hard"}}
    assert fill_prompt(PromptConfig(user=template), row) == [{"role": "user", "content": text}]


def test_braces_in_a_rows_own_text_stay_as_they_are():
    assert fill_prompt(PromptConfig(user="{q}"), {"q": "{x} {{y}}"})[0]["content"] == "{x} {{y}}"


def test_the_system_message_comes_first():
    messages = fill_prompt(PromptConfig(system="a {x}", user="b {x}"), {"x": 1})
    assert messages == [{"role": "system", "content": "a 1"}, {"role": "user", "content": "b 1"}]


@pytest.mark.parametrize(
    "template", ["{absent}", "{meta[absent]}", "{question.absent}", "{options[9]}", "{question:d}"]
)
def test_what_a_row_lacks_is_told_with_the_fields_it_has(template):
    with pytest.raises(KeyError, match=r"meta, options, question"):
        fill_prompt(PromptConfig(user=template), {"question": "q", "options": ["a"], "meta": {}})


def test_a_prompt_leaves_the_row_and_its_other_parameters_alone():
    row = {"q": "2 + 2?", "responses_create_params": {"temperature": 0.5}}
    made = apply_prompt_to_row(row, PromptConfig(user="{q}"))
    assert made == {
        "q": "2 + 2?",
        "responses_create_params": {"temperature": 0.5, "input": [{"role": "user", "content": "2 + 2?"}]},
    }
    assert row == {"q": "2 + 2?", "responses_create_params": {"temperature": 0.5}}


def test_rows_that_have_an_input_are_told_by_their_numbers():
    rows = [{"q": 1}, {"responses_create_params": {"input": "x"}}, {"responses_create_params": None}]
    prompt = PromptConfig(user="{q}")
    validate_prompt_compatibility([rows[0], rows[2]], prompt)
    with pytest.raises(DataError, match=r"but 1 rows already have responses_create_params\.input \(rows 2\)"):
        validate_prompt_compatibility(rows, prompt)
    with pytest.raises(DataError, match=r"but 30 rows .* \(rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 …\)"):
        validate_prompt_compatibility(rows[1:2] * 30, prompt)
