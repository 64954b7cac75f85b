"""Every YAML file in the repository loads, and each server in it accepts its settings."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from nemo_gym import paths
from nemo_gym.config.loading import load
from nemo_gym.config.masking import is_secret_key
from nemo_gym.config.models import RunConfig
from nemo_gym.config.process import ProcessSettings
from nemo_gym.data.prompts import load_prompt_config
from nemo_gym.process.serve import build_app, build_server
from tests.each_case import each_case

REPOSITORY = Path(__file__).parent.parent
TREES = ("resources_servers", "responses_api_agents", "responses_api_models", "configs")
FILES = sorted(
    path
    for tree in TREES
    for path in (REPOSITORY / tree).rglob("*.yaml")
    if not any(part.startswith(".") for part in path.relative_to(REPOSITORY).parts)
)
CONFIGS = [path for path in FILES if "configs" in path.relative_to(REPOSITORY).parts[:-1]]
OTHERS = [path for path in FILES if path not in CONFIGS and path.parent.name != "from"]

ENDPOINTS = [
    f"+{model}_{key}={value}"
    for model in ("policy", "reward", "genrm")
    for key, value in (("base_url", "http://127.0.0.1:9/v1"), ("api_key", "none"), ("model_name", "any"))
]
RESOURCES_SERVER = "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
SAMPLE_MODEL = {"responses_api_models": {"sample_model": {"entrypoint": "app.py"}}}
UNSET = "???"


def relative(path):
    return path.relative_to(REPOSITORY).as_posix()


def files_of(path: Path) -> Iterator[Path]:
    """Yield a file and its includes."""
    yield path
    for included in (yaml.safe_load(path.read_text("utf-8")) or {}).get("config_paths", []):
        yield from files_of(paths.find(included))


def leaves(value, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every leaf of a tree with its path."""
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if children is None:
        yield path, value
        return
    for key, child in children:
        yield from leaves(child, (*path, str(key)))


def completed(path: Path) -> RunConfig:
    """Load a file with example values for everything it leaves open: unset values, an endpoint, models."""
    files = list(files_of(path))
    trees = [yaml.safe_load(file.read_text("utf-8")) or {} for file in files]
    found = [leaf for tree in trees for leaf in leaves(tree)]
    unset = [".".join(place) for place, value in found if value == UNSET]
    servers = [f"++{key}=example_single_tool_call" for key in unset if key.endswith("resources_server.name")]
    others = [f"++{key}=anything" for key in unset if not key.endswith("resources_server.name")]
    models = {"policy_model", *(value for place, value in found if place[-2:] == ("model_server", "name"))}
    defined = {UNSET, *(name for tree in trees for name in tree)}
    return load(
        [path, *([RESOURCES_SERVER] if servers and paths.find(RESOURCES_SERVER) not in files else [])],
        [*ENDPOINTS, *servers, *others],
        initial=dict.fromkeys(models - defined, SAMPLE_MODEL),
        skip_dotenv=True,
        require_servers=True,
    )


@pytest.fixture(autouse=True)
def _restore_sys_path():
    # A server's process imports from its own folder first, but this process builds servers of many folders.
    earlier = list(sys.path)
    yield
    sys.path[:] = earlier


@pytest.mark.parametrize("path", CONFIGS, ids=relative)
def test_each_server_of_a_config_accepts_its_settings(path):
    run = completed(path)
    for server in run.servers.values():
        # As with +replicas=2, the number of processes of all servers that do not set their own.
        processes = {"num_workers": server.num_workers or 2, "sockets": ["0.sock", "1.sock"]}
        settings = ProcessSettings.of(run, server, cookie_secret="of no importance").model_copy(update=processes)
        built = build_server(settings)
        assert built.config.name == server.name
        assert build_app(built, settings).routes


@each_case("path", CONFIGS)
def test_config_contains_no_addresses_or_keys(path):
    text = path.read_text("utf-8")
    for _, value in leaves(yaml.safe_load(text) or {}):
        assert "://" not in str(value)
    for place, value in leaves(yaml.safe_load(text) or {}):
        if is_secret_key(place[-1]):
            assert str(value).startswith("${"), ".".join(place)


@each_case("path", CONFIGS)
def test_example_datasets_of_a_config_exist(path):
    for server in completed(path).servers.values():
        for dataset in server.datasets:
            if dataset.type == "example":
                assert (REPOSITORY / dataset.jsonl_fpath).is_file()


def test_other_yaml_files_are_prompts():
    for path in OTHERS:
        assert load_prompt_config(str(path)).user


@each_case(
    "folder",
    [path for tree in TREES[:3] for path in sorted((REPOSITORY / tree).iterdir()) if path.name[0] not in "._"],
)
def test_each_folder_has_a_config_with_its_name(folder):
    path = folder / "configs" / f"{folder.name}.yaml"
    assert path.is_file()
    assert folder in [server.folder for server in completed(path).servers.values()]
