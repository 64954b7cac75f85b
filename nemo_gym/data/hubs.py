"""Fetch a dataset's file from the hub that the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nemo_gym import paths
from nemo_gym.config.models import DatasetConfig
from nemo_gym.data import huggingface
from nemo_gym.data.gitlab import Project
from nemo_gym.errors import DataError

Notice = Callable[[str], None]


def fetcher(hub: str, plain: Mapping[str, object], *, notice: Notice) -> Callable[[DatasetConfig], Path]:
    """Return a function that downloads a dataset from this hub (`huggingface` or `gitlab`) and returns its path.

    The function raises `DataError` if the config names no source on this hub, or if the download fails.
    """

    def fetch(dataset: DatasetConfig) -> Path:
        source = dataset.huggingface_identifier if hub == "huggingface" else dataset.gitlab_identifier
        if source is None:
            other = dataset.source.type if dataset.source else None
            advice = f"Add +data_source={other}." if other else f"Add source: {{type: {hub}, …}} to the dataset."
            raise DataError(
                f"dataset '{dataset.name}': file '{dataset.jsonl_fpath}' not found, and the dataset does not name a "
                f"{hub} source. {advice}"
            )
        place = _place_of(dataset.jsonl_fpath)
        notice(f"fetching dataset '{dataset.name}' to {place} …")
        if hub == "huggingface":
            repo, artifact, token = str(source.repo_id), source.artifact_fpath, plain.get("hf_token")
            split = None if artifact else dataset.type
            huggingface.download(repo, place, artifact=artifact, split=split, token=str(token) if token else None)
        else:
            project = Project.of_config(plain)
            project.download(str(source.dataset_name), str(source.version), str(source.artifact_fpath), place)
        return place

    return fetch


def _place_of(relative: str) -> Path:
    """Return the target path, in the search root that already has the deepest of the path's folders."""
    path = Path(relative)
    for folder in path.parents:
        found = paths.find(folder, Path.is_dir)
        if found is not None:
            return found / path.relative_to(folder)
    return path
