"""Commands that upload, download and delete datasets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Generic, NamedTuple

from nemo_gym.cli import printing
from nemo_gym.cli.options import Options, SettingsT, settings_from
from nemo_gym.config.loading import load
from nemo_gym.config.view import HF_TOKEN_KEY_NAME
from nemo_gym.data import huggingface
from nemo_gym.data.gitlab import Project
from nemo_gym.data.hub_settings import (
    DeleteFromGitLab,
    DownloadFromGitLab,
    DownloadFromHuggingFace,
    MigrateToHuggingFace,
    UploadToGitLab,
    UploadToHuggingFace,
)
from nemo_gym.errors import ConfigError, DataError
from nemo_gym.text import counted


def upload_to_hf(words: list[str]) -> int:
    """Publish a file as a dataset on the Hugging Face Hub."""
    settings, plain = _read(words, "ng_upload_dataset_to_hf", UploadToHuggingFace)
    return _upload(settings, Project.of_config(plain) if settings.delete_from_gitlab else None)


def migrate(words: list[str]) -> int:
    """Publish a file on the Hugging Face Hub, then delete its package from GitLab."""
    settings, plain = _read(words, "ng_gitlab_to_hf_dataset", MigrateToHuggingFace)
    if "delete_from_gitlab" in plain:
        raise ConfigError("delete_from_gitlab: ng dataset migrate always deletes the package. Leave this setting out.")
    return _upload(settings, Project.of_config(plain))


def _upload(settings: MigrateToHuggingFace, deleted_from: Project | None) -> int:
    if deleted_from and settings.dataset_name is None:
        raise ConfigError("dataset_name is missing: it names the package to delete from GitLab.")
    printing.say(f"{settings.input_jsonl_fpath} uploaded as {huggingface.upload(settings)}, split {settings.split}")
    if deleted_from and settings.dataset_name:
        printing.say(f"{counted(deleted_from.delete(settings.dataset_name), 'version')} deleted from GitLab")
    return 0


def download_from_hf(words: list[str]) -> int:
    """Download a file of a dataset, or the files of all its splits, from the Hugging Face Hub."""
    settings, _ = _read(words, "ng_download_dataset_from_hf", DownloadFromHuggingFace)
    if settings.artifact_fpath is None and settings.split is None:
        assert settings.output_dirpath is not None
        for path in huggingface.download_splits(settings.repo_id, settings.output_dirpath, token=settings.hf_token):
            printing.say(str(path))
        return 0
    name = (settings.artifact_fpath or f"{settings.split}.jsonl").rpartition("/")[2]
    output = settings.output_fpath or (settings.output_dirpath / name if settings.output_dirpath else None)
    assert output is not None
    huggingface.download(
        settings.repo_id, output, artifact=settings.artifact_fpath, split=settings.split, token=settings.hf_token
    )
    printing.say(str(output))
    return 0


def upload_to_gitlab(words: list[str]) -> int:
    settings, plain = _read(words, "ng_upload_dataset_to_gitlab", UploadToGitLab)
    if not settings.input_jsonl_fpath.is_file():
        raise DataError(f"input_jsonl_fpath: file '{settings.input_jsonl_fpath}' not found. Check the path.")
    artifact = Project.of_config(plain).upload(settings.input_jsonl_fpath, settings.dataset_name, settings.version)
    printing.say(f"{settings.input_jsonl_fpath} uploaded as {artifact} to {settings.dataset_name} {settings.version}")
    return 0


def download_from_gitlab(words: list[str]) -> int:
    settings, plain = _read(words, "ng_download_dataset_from_gitlab", DownloadFromGitLab)
    project = Project.of_config(plain)
    project.download(settings.dataset_name, settings.version, settings.artifact_fpath, settings.output_fpath)
    printing.say(str(settings.output_fpath))
    return 0


def delete_from_gitlab(words: list[str]) -> int:
    """Delete all versions of a package from a GitLab project."""
    settings, plain = _read(words, "ng_delete_dataset_from_gitlab", DeleteFromGitLab)
    deleted = Project.of_config(plain).delete(settings.dataset_name)
    printing.say(f"{settings.dataset_name}: {counted(deleted, 'version')} deleted")
    return 0


class _Given(NamedTuple, Generic[SettingsT]):
    settings: SettingsT
    plain: Mapping[str, object]
    """All top-level values of the config."""


def _read(words: list[str], program: str, model: type[SettingsT]) -> _Given[SettingsT]:
    line = Options(program, model, takes_config=False).read(words)
    token = os.environ.get(huggingface.TOKEN)
    plain = {
        **({HF_TOKEN_KEY_NAME: token} if token else {}),
        **load(line.paths, line.overrides, needs_variables=False).plain,
    }
    return _Given(settings_from(model, plain), plain)
