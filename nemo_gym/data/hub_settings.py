"""Parameters of the commands that fetch and publish datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator


class _Settings(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class UploadToGitLab(_Settings):
    """Parameters of `ng_upload_dataset_to_gitlab`."""

    dataset_name: str
    """The name of the package."""
    version: str
    """Its version."""
    input_jsonl_fpath: Path
    """The file."""


class DownloadFromGitLab(_Settings):
    """Parameters of `ng_download_dataset_from_gitlab`."""

    dataset_name: str
    """The name of the package."""
    version: str
    """Its version."""
    artifact_fpath: str
    """The file in the package."""
    output_fpath: Path
    """Where it goes."""


class DeleteFromGitLab(_Settings):
    """Parameters of `ng_delete_dataset_from_gitlab`."""

    dataset_name: str
    """The package; all of its versions are deleted."""


class MigrateToHuggingFace(_Settings):
    """Parameters of `ng_gitlab_to_hf_dataset`: a file is published, then its package deleted from GitLab."""

    hf_token: str
    """A token that may write; better kept in env.yaml."""
    hf_organization: str
    """Whose dataset it is to be."""
    hf_collection_name: str
    """The collection that it joins."""
    hf_collection_slug: str
    """What stands behind the name in the collection's address, or the whole of its slug."""
    dataset_name: str | None = None
    """What follows the prefix in its name; without one, the domain and the name of the server in the config."""
    input_jsonl_fpath: Path
    """The file."""
    resource_config_path: str
    """The YAML of the environment that it belongs to."""
    hf_dataset_prefix: str = "Nemotron-RL"
    """What its name begins with."""
    split: Literal["train", "validation", "test"] = "train"
    """Which part of the dataset the file is."""
    create_pr: bool = False
    """Propose it instead of publishing it."""
    revision: str | None = None
    """The branch, where it is not the main one."""
    commit_message: str | None = None
    """The title of the change."""
    commit_description: str | None = None
    """More about it."""


class UploadToHuggingFace(MigrateToHuggingFace):
    """Parameters of `ng_upload_dataset_to_hf`."""

    delete_from_gitlab: bool = False
    """Afterwards delete the package of this dataset_name from GitLab."""
    storage: Literal["hf"] = "hf"
    """Where to; for gitlab the parameters are other ones."""


class DownloadFromHuggingFace(_Settings):
    """Parameters of `ng_download_dataset_from_hf`."""

    repo_id: str
    """The dataset, as organization/name."""
    artifact_fpath: str | None = None
    """The file in it; else name a split."""
    split: Literal["train", "validation", "test"] | None = None
    """The part of it; else name a file."""
    output_fpath: Path | None = None
    """Where it goes; else name a folder."""
    output_dirpath: Path | None = None
    """The folder that it goes into."""
    hf_token: str | None = None
    """A token, where the dataset is not public."""
    storage: Literal["hf"] = "hf"
    """Where from; for gitlab the parameters are other ones."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for pair in (("artifact_fpath", "split"), ("output_fpath", "output_dirpath")):
            if sum(getattr(self, name) is not None for name in pair) != 1:
                raise ValueError(f"exactly one of {pair[0]} and {pair[1]} has to be given")
        return self
