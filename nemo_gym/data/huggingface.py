"""Datasets on the Hugging Face Hub, through its `huggingface_hub` library."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from nemo_gym.config import load
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.data.hub_settings import MigrateToHuggingFace
from nemo_gym.errors import DataError

LIBRARY = "huggingface_hub"


def upload(settings: MigrateToHuggingFace) -> str:
    """Publish a file as a split of a dataset, add that to its collection, and return its repo id."""
    if not settings.input_jsonl_fpath.is_file():
        raise DataError(f"input_jsonl_fpath: file '{settings.input_jsonl_fpath}' not found. Check the path.")
    repo = repo_id_of(settings)
    api = _library().HfApi(token=settings.hf_token)
    with _failing_as(f"{settings.input_jsonl_fpath}: upload as {repo}"):
        api.create_repo(repo, repo_type="dataset", exist_ok=True)
        api.upload_file(
            path_or_fileobj=settings.input_jsonl_fpath,
            path_in_repo=f"{settings.split}.jsonl",
            repo_id=repo,
            repo_type="dataset",
            revision=settings.revision,
            create_pr=settings.create_pr,
            commit_message=settings.commit_message,
            commit_description=settings.commit_description,
        )
    with _failing_as(f"{repo}: addition to collection {_collection_of(settings)}"):
        api.add_collection_item(_collection_of(settings), item_id=repo, item_type="dataset", exists_ok=True)
    return repo


def download(
    repo_id: str, output: Path, *, artifact: str | None = None, split: str | None = None, token: str | None = None
) -> None:
    """Download a dataset's file to `output`: `artifact`, or else the file of the split."""
    hub = _library()
    what = f"dataset '{repo_id}': download of {artifact or split}"
    with tempfile.TemporaryDirectory(prefix="nemo_gym_download_") as work, _failing_as(what):
        name = artifact or _file_of_split(hub.HfApi(token=token).list_repo_files(repo_id, repo_type="dataset"), split)
        if name is None:
            raise DataError(f"{what}: the dataset does not contain {split}.jsonl. Name the file: +artifact_fpath=…")
        fetched = hub.hf_hub_download(repo_id, name, repo_type="dataset", token=token, local_dir=work)
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(f".{output.name}.partial")
        shutil.copyfile(fetched, partial)
        partial.replace(output)


def repo_id_of(settings: MigrateToHuggingFace) -> str:
    """Return the dataset's repo id, `organization/prefix-name`."""
    name = settings.dataset_name or _name_in(settings.resource_config_path)
    return f"{settings.hf_organization}/{settings.hf_dataset_prefix}-{name}"


def _name_in(config_path: str) -> str:
    servers = load([config_path], skip_dotenv=True, initial=NO_MODEL).servers_of("resources_servers")
    if not servers:
        raise DataError(f"{config_path}: no resources server that could name the dataset. Add +dataset_name=…")
    domain = servers[0].settings.get("domain")
    return f"{domain}-{servers[0].name}" if domain else servers[0].name


def _collection_of(settings: MigrateToHuggingFace) -> str:
    slug, name = settings.hf_collection_slug, settings.hf_collection_name.lower().replace(" ", "-")
    return slug if "/" in slug else f"{settings.hf_organization}/{name}-{slug}"


def _file_of_split(files: list[str], split: str | None) -> str | None:
    return next((name for name in (f"{split}.jsonl", f"data/{split}.jsonl") if name in files), None)


def _library() -> ModuleType:
    try:
        return importlib.import_module(LIBRARY)
    except ImportError as error:
        raise DataError(f"{LIBRARY} is required but not installed. Run: pip install {LIBRARY}") from error


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    errors = importlib.import_module(f"{LIBRARY}.errors")
    known = (errors.HfHubHTTPError, errors.HFValidationError, errors.EntryNotFoundError, ConnectionError)
    try:
        yield
    except known as error:
        raise DataError(f"{what}: {' '.join(str(error).split())}") from error
    except Exception as error:
        # The library passes on its HTTP client's errors, and that client differs between versions.
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "requests", "urllib3"):
            raise
        raise DataError(f"{what}: request failed ({error}). Check the network connection.") from error
