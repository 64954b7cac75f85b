"""Datasets on the Hugging Face Hub, through its `huggingface_hub` library."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from nemo_gym.config.loading import load
from nemo_gym.config.servers import NO_MODEL
from nemo_gym.config.view import HF_TOKEN_KEY_NAME, current_view
from nemo_gym.data.hub_settings import MigrateToHuggingFace
from nemo_gym.errors import DataError
from nemo_gym.http.probe import Trouble, trouble_of
from nemo_gym.jsonl import replacing

REACHABLE_S = 10.0
OFFLINE, ENDPOINT, TOKEN = "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_TOKEN"
"""Environment variables that the library `huggingface_hub` reads."""
LIBRARY = "huggingface_hub"
SPLITS = ("train", "validation", "test", "benchmark", "example")
"""The splits whose file is found by its name, `<split>.jsonl`."""


def upload(settings: MigrateToHuggingFace) -> str:
    """Publish a file as a split of a dataset, add the dataset to its collection, and return the dataset's repo id."""
    if not settings.input_jsonl_fpath.is_file():
        raise DataError(f"input_jsonl_fpath: file '{settings.input_jsonl_fpath}' not found. Check the path.")
    repo = repo_id_of(settings)
    what = f"{settings.input_jsonl_fpath}: upload as {repo}"
    api = _reachable_hub(what).HfApi(token=settings.hf_token)
    with _failing_as(what):
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
    """Download `artifact`, or the file of the split if `artifact` is None, from a dataset to `output`."""
    what = f"dataset '{repo_id}': download of {artifact or split}"
    hub = _reachable_hub(what)
    with _failing_as(what):
        name = artifact or _files_of_splits(hub, repo_id, token).get(str(split))
    if name is None:
        raise DataError(f"{what}: the dataset does not contain {split}.jsonl. Name the file: --artifact …")
    _fetch(hub, repo_id, name, output, token)


def file_of_split(repo_id: str, split: str, revision: str) -> str:
    """Return the path of a split's file in a dataset. Raise `DataError` if the dataset does not have such a file."""
    what = f"dataset '{repo_id}': download of {split}"
    hub = _reachable_hub(what)
    with _failing_as(what):
        name = _files_of_splits(hub, repo_id, token_of_process(), revision).get(split)
    if name is None:
        raise DataError(f"{what}: the dataset does not contain {split}.jsonl. Name the file: artifact_fpath: …")
    return name


def token_of_process() -> str | None:
    """Return the token in the environment variable HF_TOKEN, or else the configured token, or else None."""
    plain = current_view()
    configured = plain.get(HF_TOKEN_KEY_NAME) if plain else None
    return os.environ.get(TOKEN) or (str(configured) if configured else None)


def is_forbidden() -> bool:
    """Return whether the environment variable HF_HUB_OFFLINE forbids access to the hub."""
    return os.environ.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE")


def download_splits(repo_id: str, folder: Path, *, token: str | None = None) -> list[Path]:
    """Download the file of every split of a dataset to `folder` and return their paths."""
    what = f"dataset '{repo_id}': download of every split"
    hub = _reachable_hub(what)
    with _failing_as(what):
        files = _files_of_splits(hub, repo_id, token)
    if not files:
        raise DataError(
            f"dataset '{repo_id}' contains none of {', '.join(f'{split}.jsonl' for split in SPLITS)}. Name the file: "
            "--artifact …"
        )
    outputs = {split: folder / f"{split}.jsonl" for split in files}
    for split, name in files.items():
        _fetch(hub, repo_id, name, outputs[split], token)
    return list(outputs.values())


def _fetch(hub: ModuleType, repo_id: str, name: str, output: Path, token: str | None) -> None:
    what = f"dataset '{repo_id}': download of {name}"
    with tempfile.TemporaryDirectory(prefix="nemo_gym_download_") as work, _failing_as(what):
        fetched = hub.hf_hub_download(repo_id, name, repo_type="dataset", token=token, local_dir=work)
        output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(output) as partial:
            shutil.copyfile(fetched, partial)


def repo_id_of(settings: MigrateToHuggingFace) -> str:
    """Return the dataset's repo id, `organization/prefix-name`."""
    name = settings.dataset_name or _name_in(settings.resource_config_path)
    return f"{settings.hf_organization}/{settings.hf_dataset_prefix}-{name}"


def _name_in(config_path: str) -> str:
    servers = load([config_path], skip_dotenv=True, initial=NO_MODEL, needs_variables=False).servers_of(
        "resources_servers"
    )
    if not servers:
        raise DataError(f"{config_path}: no resources server found to name the dataset after. Add --name …")
    domain = servers[0].settings.get("domain")
    return f"{domain}-{servers[0].name}" if domain else servers[0].name


def _collection_of(settings: MigrateToHuggingFace) -> str:
    slug, name = settings.hf_collection_slug, settings.hf_collection_name.lower().replace(" ", "-")
    return slug if "/" in slug else f"{settings.hf_organization}/{name}-{slug}"


def _files_of_splits(hub: ModuleType, repo_id: str, token: str | None, revision: str | None = None) -> dict[str, str]:
    """Return the path of each split's file in a dataset. Leave out splits that the dataset does not have."""
    files = hub.HfApi(token=token).list_repo_files(repo_id, repo_type="dataset", revision=revision)
    named = {split: (f"{split}.jsonl", f"data/{split}.jsonl") for split in SPLITS}
    return {
        split: next(name for name in names if name in files) for split, names in named.items() if {*names} & {*files}
    }


def _library() -> ModuleType:
    try:
        return importlib.import_module(LIBRARY)
    except ImportError as error:
        raise DataError(f"{LIBRARY} is required but not installed. Run: pip install 'nemo-gym[hub]'") from error


def _reachable_hub(what: str) -> ModuleType:
    """Return the library. Raise `DataError` if the hub is unreachable, because the library would retry too long."""
    if is_forbidden():
        raise DataError(f"{what}: the environment variable {OFFLINE} forbids network access. Run: unset {OFFLINE}")
    hub = _library()
    if problem := unreachable():
        raise DataError(f"{what}: {problem}. Check the network, or name a mirror: export {ENDPOINT}=https://…")
    return hub


def unreachable() -> str | None:
    """Return a description of the problem if the hub cannot be reached, or else None."""
    address = os.environ.get(ENDPOINT) or "https://huggingface.co"
    trouble = trouble_of(address, REACHABLE_S, path="")
    reached = trouble in (None, Trouble.UNTRUSTED, Trouble.INVALID)
    return None if reached else f"the hub at {address} cannot be reached ({trouble})"


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    errors = importlib.import_module(f"{LIBRARY}.errors")
    known = (errors.HfHubHTTPError, errors.HFValidationError, errors.EntryNotFoundError, ConnectionError)
    try:
        yield
    except known as error:
        raise DataError(f"{what}: {' '.join(str(error).split())}") from error
    except Exception as error:
        # The library does not wrap the errors of its HTTP client. Recognize them by module name, because the client
        # differs between versions of the library.
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "requests", "urllib3"):
            raise
        raise DataError(f"{what}: request failed ({error}). Check the network connection.") from error
