"""Download a dataset's file from the source that the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nemo_gym.config.models import DatasetConfig, DatasetSource
from nemo_gym.data import huggingface
from nemo_gym.data.gitlab import Project
from nemo_gym.data.sources import HuggingFace, Source, Url, address_of, fetch_to, hub_address, size_note
from nemo_gym.errors import DataError

Notice = Callable[[str], None]


def download(
    dataset: DatasetConfig, target: Path, plain: Mapping[str, object], *, hub: str | None, notice: Notice
) -> None:
    """Download a dataset's file to `target`.

    Download from `hub` (`huggingface` or `gitlab`), or from the dataset's own source if `hub` is None.
    A source of type `url` is used with any hub. Raise `DataError` if the dataset does not name a source on this hub,
    or if the download fails.
    """
    source = _source_on(dataset, hub)
    notice(f"fetching dataset '{dataset.name}' to {target} …")
    try:
        if source.type == "gitlab":
            project = Project.of_config(plain)
            address = project.file(str(source.dataset_name), str(source.version), str(source.artifact_fpath))
            fetch_to(Url(address, source.sha256), target, headers=project.headers)
        else:
            fetch_to(_public(source, dataset.type), target)
    except DataError as error:
        raise DataError(f"dataset '{dataset.name}': {error}") from error


def described(dataset: DatasetConfig, source: DatasetSource, target: Path) -> str:
    """Return the source of a dataset's file as text for a message, with the size of the file if it is known."""
    if source.type == "gitlab":
        return f"package {source.dataset_name} {source.version} on GitLab ({source.artifact_fpath})"
    if source.type == "huggingface" and source.artifact_fpath is None:
        return f"{hub_address()}/datasets/{source.repo_id} (split {dataset.type})"
    public = _public(source, dataset.type)
    return f"{address_of(public)}{size_note(public, target)}"


def _source_on(dataset: DatasetConfig, hub: str | None) -> DatasetSource:
    source = dataset.source
    if source is not None and hub is not None and source.type != "url":
        source = dataset.huggingface_identifier if hub == "huggingface" else dataset.gitlab_identifier
    if source is not None:
        return source
    hub = hub or "huggingface"
    other = dataset.source.type if dataset.source else None
    advice = f"Add --data-source {other}." if other else f"Add source: {{type: {hub}, …}} to the dataset."
    raise DataError(
        f"dataset '{dataset.name}': file '{dataset.jsonl_fpath}' not found, and the dataset does not name a "
        f"{hub} source. {advice}"
    )


def _public(source: DatasetSource, split: str) -> Source:
    if source.type == "url":
        return Url(str(source.url), source.sha256)
    repo, revision = str(source.repo_id), source.revision or "main"
    name = source.artifact_fpath or huggingface.file_of_split(repo, split, revision)
    return HuggingFace(repo, name, revision, source.sha256)
