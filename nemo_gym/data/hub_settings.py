"""Parameters of the commands that fetch and publish datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator


class _Settings(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class _Package(_Settings):
    dataset_name: str
    """The name of the GitLab package that contains the dataset."""
    version: str
    """The version of the GitLab package."""


class UploadToGitLab(_Package):
    """Parameters of `ng dataset upload --storage gitlab`."""

    input_jsonl_fpath: Path
    """The local file to upload."""


class DownloadFromGitLab(_Package):
    """Parameters of `ng dataset download --storage gitlab`."""

    artifact_fpath: str
    """The name of the file in the package."""
    output_fpath: Path
    """The local path for the downloaded file."""


class DeleteFromGitLab(_Settings):
    """Parameters of `ng dataset rm`."""

    dataset_name: str
    """The name of the GitLab package. All its versions are deleted."""


class MigrateToHuggingFace(_Settings):
    """Parameters of `ng dataset migrate`, which publishes a file and then deletes its package from GitLab."""

    hf_token: str
    """A token with write access. Keep it in env.yaml."""
    hf_organization: str
    """The organization that owns the dataset."""
    hf_collection_name: str
    """The collection to which the dataset is added."""
    hf_collection_slug: str
    """The id at the end of the collection's URL, or the full slug: organization/name-id."""
    dataset_name: str | None = None
    """The dataset's name without the prefix. Default: the domain and name of the server in the config."""
    input_jsonl_fpath: Path
    """The local file to upload."""
    resource_config_path: str
    """The YAML file of the environment to which the dataset belongs."""
    hf_dataset_prefix: str = "Nemotron-RL"
    """The prefix of the dataset's name."""
    split: Literal["train", "validation", "test"] = "train"
    """The split that the file contains."""
    create_pr: bool = False
    """Open a pull request instead of publishing directly."""
    revision: str | None = None
    """The branch of the dataset to commit to. Default: the main branch."""
    commit_message: str | None = None
    """The title of the commit. Default: a title from `huggingface_hub`."""
    commit_description: str | None = None
    """The text below the title of the commit."""


class UploadToHuggingFace(MigrateToHuggingFace):
    """Parameters of `ng dataset upload`."""

    delete_from_gitlab: bool = False
    """Delete the package with this dataset_name from GitLab after the upload."""
    storage: Literal["hf"] = "hf"
    """The target hub. `--storage gitlab` runs `ng dataset upload --storage gitlab` instead."""


class DownloadFromHuggingFace(_Settings):
    """Parameters of `ng dataset download`."""

    repo_id: str
    """The dataset, as organization/name."""
    artifact_fpath: str | None = None
    """The file to download from the dataset, instead of a split."""
    split: Literal["train", "validation", "test"] | None = None
    """The split to download. Without split or artifact_fpath, every split is downloaded to output_dirpath."""
    output_fpath: Path | None = None
    """The file to write. Give either this or output_dirpath."""
    output_dirpath: Path | None = None
    """The folder to write to. Give either this or output_fpath."""
    hf_token: str | None = None
    """A token, required if the dataset is not public."""
    storage: Literal["hf"] = "hf"
    """The source hub. `--storage gitlab` runs `ng dataset download --storage gitlab` instead."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.artifact_fpath is not None and self.split is not None:
            raise ValueError("give at most one of artifact_fpath and split")
        if (self.output_fpath is None) == (self.output_dirpath is None):
            raise ValueError("give exactly one of output_fpath and output_dirpath")
        if self.output_fpath is not None and self.artifact_fpath is None and self.split is None:
            raise ValueError("every split is downloaded, so give output_dirpath instead of output_fpath, or add split")
        return self
