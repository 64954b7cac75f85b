"""The datasets of an agent."""

from __future__ import annotations

import pytest

from nemo_gym.errors import AlmostServerError

AGENT = """
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      datasets:
"""
KEY = "agent.responses_api_agents.simple_agent.datasets.0"


def with_dataset(fields: str) -> str:
    """An agent with one dataset, written from line 6 on."""
    return AGENT + "      - " + fields.replace("\n", "\n        ") + "\n"


TRAIN = "name: t\ntype: train\njsonl_fpath: data/t.jsonl\nlicense: MIT"


def test_a_dataset_is_read(project):
    (dataset,) = project.load_text(with_dataset(f"{TRAIN}\nnum_repeats: 4\nunknown: 1")).servers["agent"].datasets
    assert (dataset.name, dataset.type, dataset.jsonl_fpath) == ("t", "train", "data/t.jsonl")
    assert (dataset.num_repeats, dataset.license, dataset.source) == (4, "MIT", None)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (TRAIN.replace("MIT", "Apache-2.0"), f"main.yaml:9: {KEY}.license: 'Apache-2.0' is none of the licences"),
        (TRAIN.replace("MIT", "Apache-2.0"), "Did you mean 'Apache 2.0'?"),
        (TRAIN.replace("\nlicense: MIT", ""), f"main.yaml:6: {KEY}.license: the licence of a train dataset has to be"),
        (TRAIN.replace("type: train", "type: trian"), f"main.yaml:7: {KEY}.type: it has to be 'train', 'validation',"),
        (TRAIN.replace("type: train", "type: trian"), "and is 'trian'. Did you mean 'train'?"),
        (TRAIN + "\nnum_repeats: 0", f"main.yaml:10: {KEY}.num_repeats: it has to be greater than or equal to 1"),
        (TRAIN + "\nnum_repeat: 4", f"main.yaml:10: {KEY}.num_repeat: there is no such setting. Did you mean"),
        (TRAIN.replace("jsonl_fpath", "jsonl_path"), "is 'jsonl_path' meant for it?"),
        (TRAIN + "\nsource: {type: huggingface}", f"main.yaml:10: {KEY}.source: a huggingface source needs repo_id."),
        (TRAIN + "\nsource: {type: hub, repo_id: x}", f"main.yaml:10: {KEY}.source.type: it has to be 'huggingface'"),
        ("just text", f"main.yaml:6: {KEY}: "),
    ],
)
def test_a_mistake_in_a_dataset_is_told_with_its_place(project, fields, told):
    message = project.refusal(AlmostServerError, with_dataset(fields))
    assert told in message
    assert len(message.splitlines()) == 1


def test_a_misspelt_override_of_a_key_that_the_file_sets_is_told(project):
    word = f"+{KEY}.jsonl_fpth=x"
    message = project.refusal(AlmostServerError, with_dataset(TRAIN), word)
    assert message == (
        f"command line: {word}: {KEY}.jsonl_fpth: there is no such setting. Did you mean 'jsonl_fpath'?"
    )


@pytest.mark.parametrize("kind", ["example", "benchmark"])
def test_the_licence_of_other_data_is_not_looked_at(project, kind):
    text = with_dataset(f"name: x\ntype: {kind}\njsonl_fpath: x.jsonl\nlicense: something else")
    assert project.load_text(text).servers["agent"].datasets[0].type == kind


def test_a_source_and_its_old_form_are_kept_in_step(project):
    new = project.load_text(with_dataset(f"{TRAIN}\nsource: {{type: huggingface, repo_id: a/b}}"))
    with pytest.warns(DeprecationWarning, match="write source: {type: huggingface"):
        old = project.load_text(with_dataset(f"{TRAIN}\nhuggingface_identifier: {{repo_id: a/b}}"))
    (new_dataset,), (old_dataset,) = new.servers["agent"].datasets, old.servers["agent"].datasets
    assert new_dataset == old_dataset
    assert new_dataset.source == new_dataset.huggingface_identifier
    assert new_dataset.source.repo_id == "a/b"


def test_both_old_forms_may_stand_side_by_side(project):
    fields = (
        f"{TRAIN}\nhuggingface_identifier: {{repo_id: a/b}}\n"
        "gitlab_identifier: {dataset_name: n, version: 0.0.1, artifact_fpath: t.jsonl}"
    )
    with pytest.warns(DeprecationWarning, match="write source"):
        (dataset,) = project.load_text(with_dataset(fields)).servers["agent"].datasets
    assert dataset.source == dataset.huggingface_identifier
    assert dataset.gitlab_identifier.version == "0.0.1"
