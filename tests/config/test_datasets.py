"""Datasets of an agent."""

from __future__ import annotations

import pytest

from nemo_gym.errors import AlmostServerError
from tests.each_case import each_case

AGENT = """
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      datasets:
"""
KEY = "agent.responses_api_agents.simple_agent.datasets.0"


def with_dataset(fields: str) -> str:
    """Return an agent with one dataset, which starts at line 6."""
    return AGENT + "      - " + fields.replace("\n", "\n        ") + "\n"


TRAIN = "name: t\ntype: train\njsonl_fpath: data/t.jsonl\nlicense: MIT"


def test_a_dataset_is_read(project):
    (dataset,) = project.load_text(with_dataset(f"{TRAIN}\nnum_repeats: 4\nunknown: 1")).servers["agent"].datasets
    assert (dataset.name, dataset.type, dataset.jsonl_fpath) == ("t", "train", "data/t.jsonl")
    assert (dataset.num_repeats, dataset.license, dataset.source) == (4, "MIT", None)


@each_case(
    ("fields", "expected"),
    [
        (TRAIN.replace("MIT", "Apache-2.0"), f"main.yaml:9: {KEY}.license: 'Apache-2.0' is not one of the licenses"),
        (TRAIN.replace("MIT", "Apache-2.0"), "Did you mean 'Apache 2.0'?"),
        (TRAIN.replace("\nlicense: MIT", ""), f"main.yaml:6: {KEY}.license: a train dataset needs a license"),
        (TRAIN.replace("type: train", "type: trian"), f"main.yaml:7: {KEY}.type: it must be 'train', 'validation',"),
        (TRAIN.replace("type: train", "type: trian"), "but is 'trian'. Did you mean 'train'?"),
        (TRAIN + "\nnum_repeats: 0", f"main.yaml:10: {KEY}.num_repeats: it must be greater than or equal to 1"),
        (TRAIN + "\nnum_repeat: 4", f"main.yaml:10: {KEY}.num_repeat: unknown setting. Did you mean"),
        (TRAIN.replace("jsonl_fpath", "jsonl_path"), "is 'jsonl_path' a typo for it?"),
        (TRAIN + "\nsource: {type: huggingface}", f"main.yaml:10: {KEY}.source: a huggingface source needs repo_id."),
        (TRAIN + "\nsource: {type: hub, repo_id: x}", f"main.yaml:10: {KEY}.source.type: it must be 'huggingface'"),
        (TRAIN + "\nsource: {type: url}", f"main.yaml:10: {KEY}.source: a url source needs url."),
        (TRAIN + "\nsource: {type: url, url: example.org/x}", f"main.yaml:10: {KEY}.source.url: "),
        (TRAIN + "\nsource: {type: url, url: 'https://a/x', revision: b}", "a url source does not have a revision"),
        (TRAIN + "\nsource: {type: url, url: 'https://a/x', sha256: ab}", f"main.yaml:10: {KEY}.source.sha256: "),
        (TRAIN + "\nprepare_arg: {count: 1}", f"main.yaml:10: {KEY}.prepare_arg: unknown setting. Did you mean"),
        (TRAIN + "\nprepare_args: 3", f"main.yaml:10: {KEY}.prepare_args: "),
        ("just text", f"main.yaml:6: {KEY}: "),
    ],
)
def test_invalid_dataset_reports_location(project, fields, expected):
    message = project.refusal(AlmostServerError, with_dataset(fields))
    assert expected in message
    assert len(message.splitlines()) == 1


def test_misspelt_override_of_existing_dataset_key_is_rejected(project):
    word = f"+{KEY}.jsonl_fpth=x"
    message = project.refusal(AlmostServerError, with_dataset(TRAIN), word)
    assert message == f"command line: {word}: {KEY}.jsonl_fpth: unknown setting. Did you mean 'jsonl_fpath'?"


@pytest.mark.parametrize("kind", ["example", "benchmark"])
def test_license_of_other_data_is_not_checked(project, kind):
    text = with_dataset(f"name: x\ntype: {kind}\njsonl_fpath: x.jsonl\nlicense: something else")
    assert project.load_text(text).servers["agent"].datasets[0].type == kind


def test_source_and_its_old_form_stay_in_sync(project):
    new = project.load_text(with_dataset(f"{TRAIN}\nsource: {{type: huggingface, repo_id: a/b}}"))
    with pytest.warns(DeprecationWarning, match="write source: {type: huggingface"):
        old = project.load_text(with_dataset(f"{TRAIN}\nhuggingface_identifier: {{repo_id: a/b}}"))
    (new_dataset,), (old_dataset,) = new.servers["agent"].datasets, old.servers["agent"].datasets
    assert new_dataset == old_dataset
    assert new_dataset.source == new_dataset.huggingface_identifier
    assert new_dataset.source.repo_id == "a/b"


def test_both_old_source_forms_can_be_combined(project):
    fields = (
        f"{TRAIN}\nhuggingface_identifier: {{repo_id: a/b}}\n"
        "gitlab_identifier: {dataset_name: n, version: 0.0.1, artifact_fpath: t.jsonl}"
    )
    with pytest.warns(DeprecationWarning, match="write source"):
        (dataset,) = project.load_text(with_dataset(fields)).servers["agent"].datasets
    assert dataset.source == dataset.huggingface_identifier
    assert dataset.gitlab_identifier.version == "0.0.1"
