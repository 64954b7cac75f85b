"""The configuration reference: every key, from the classes that read it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from nemo_gym.config.models import LICENSES, DatasetConfig, DatasetSource, HeadConfig
from nemo_gym.config.run_settings import RunSettings
from nemo_gym.config.settings import (
    SERVER_TYPES,
    BaseResourcesServerConfig,
    BaseResponsesAPIAgentConfig,
    BaseResponsesAPIModelConfig,
    BaseRunServerConfig,
    BaseRunServerInstanceConfig,
    BaseServerConfig,
    ServerType,
)
from nemo_gym.config.tls import TlsBlock
from nemo_gym.config.token_capture import TokenCaptureConfig
from nemo_gym.contract.manifest import DeclaredReward
from nemo_gym.data.prompts import PromptConfig
from nemo_gym.data.skills import SkillsConfig
from nemo_gym.grading.judge import JudgeConfig
from nemo_gym.rollouts.usage import Price
from nemo_gym.servers.conversing import ConversingAgentConfig
from pages.fields import Key, keys_of_model, section

BLOCK = """```yaml
my_env:                   # its name, of your choice
  resources_servers:      # its type
    mcqa:                 # its folder: resources_servers/mcqa
      entrypoint: app.py  # its settings
```
"""
SERVER_NAME = {"name"}
TIER_BASES: dict[ServerType, type[BaseRunServerInstanceConfig]] = {
    "resources_servers": BaseResourcesServerConfig,
    "responses_api_agents": BaseResponsesAPIAgentConfig,
    "responses_api_models": BaseResponsesAPIModelConfig,
}
BLOCKS: tuple[tuple[str, str, str, type[BaseModel]], ...] = (
    ("The block head_server", "At the top level.", "head_server.", HeadConfig),
    ("The block tls", "At the top level.", "tls.", TlsBlock),
    ("The block token_id_capture", "At the top level.", "token_id_capture.", TokenCaptureConfig),
    ("Datasets", "In the list `datasets` of an agent.", "datasets[].", DatasetConfig),
    (
        "The source of a dataset",
        "In the block `source` of a dataset. A `huggingface` source needs `repo_id`, a `gitlab` source "
        "`dataset_name`, `version` and `artifact_fpath`, and a `url` source `url`.",
        "datasets[].source.",
        DatasetSource,
    ),
    (
        "A judge",
        "In a resources server, as `judge` or under the name that the environment gives it.",
        "judge.",
        JudgeConfig,
    ),
    (
        "A prompt file",
        "The file that `prompt_config` of a dataset or of a collection names.",
        "prompt file: ",
        PromptConfig,
    ),
    ("Skills", "In the block `skills` of a collection.", "skills.", SkillsConfig),
    ("The prices of a model", "In the file that `prices` names, below `models.NAME`.", "prices: ", Price),
    (
        "The reward in manifest.yaml",
        "In the block `reward` of an environment's `manifest.yaml`.",
        "reward.",
        DeclaredReward,
    ),
)
INHERITED_BY_THE_LAUNCHER = {"port_is_fixed", "tls"}

ADVERTISED = "advertised_host"


def configuration(repository: Path) -> str:
    """Return the body of the page."""
    return "\n".join([*_top_level(), *_server_blocks(), *_blocks(), *_shipped_servers(repository)])


def _top_level() -> Iterator[str]:
    yield "## Top level\n\nThese keys are not inside any block. The parameters of commands may be here, too.\n"
    for table in RunSettings.__bases__:
        yield f"### {str(table.__doc__).rstrip('.')}\n\n{section(keys_of_model(table))}"


def _server_blocks() -> Iterator[str]:
    common = {*BaseRunServerConfig.model_fields, *SERVER_NAME}
    yield "## Server blocks\n\nEvery server is a block with three levels: its name, its type and its folder.\n"
    yield BLOCK
    yield "### Every server\n"
    own = keys_of_model(BaseRunServerConfig, besides=BaseServerConfig.model_fields)
    yield section([*_optional_address(), *(key for key in own if key.name != ADVERTISED)])
    # The top level has a key with the same name.
    yield section([key for key in own if key.name == ADVERTISED], "server: ")
    for heading, model in (
        ("Resources servers", BaseResourcesServerConfig),
        ("Agents", BaseResponsesAPIAgentConfig),
        ("Model servers", BaseResponsesAPIModelConfig),
    ):
        yield f"### {heading}\n"
        yield section(keys_of_model(model, besides=common), f"{heading.lower().removesuffix('s')}: ")
    yield "### Agents that hold a conversation\n"
    besides = {*BaseResponsesAPIAgentConfig.model_fields}
    yield section(keys_of_model(ConversingAgentConfig, besides=besides), "conversing agent: ")


def _optional_address() -> list[Key]:
    return [
        Key("host", "str", "default_host", "The address on which the server listens."),
        Key("port", "int", "a free one", "Its port. By default a free one of the range from `port_range_low`."),
        Key("num_workers", "int | null", "null", "The number of processes that serve it. Default: `replicas`."),
    ]


def _blocks() -> Iterator[str]:
    for heading, place, prefix, model in BLOCKS:
        yield f"## {heading}\n\n{place}\n"
        yield section(keys_of_model(model, besides=INHERITED_BY_THE_LAUNCHER), prefix)
        if model is DatasetConfig:
            yield f"A `train` or `validation` dataset needs one of these licences: {', '.join(LICENSES)}.\n"


def _shipped_servers(repository: Path) -> Iterator[str]:
    yield "## Settings of the shipped servers\n\nIn the block of the server, in addition to the keys of its type.\n"
    for tier in SERVER_TYPES:
        for app in sorted((repository / tier).glob("*/app.py")):
            name = app.parent.name
            if keys := own_keys(tier, app.parent):
                yield f"### {name}\n\nSee [{tier}/{name}](../{tier}/{name}.md).\n\n{section(keys, f'{name}: ')}"


def own_keys(tier: ServerType, folder: Path) -> list[Key]:
    """Return the settings that a server folder defines itself."""
    module = importlib.import_module(f"{tier}.{folder.name}.app")
    readme = (folder / "README.md").read_text("utf-8")
    inherited = {*TIER_BASES[tier].model_fields}
    found: dict[str, Key] = {}
    for each in vars(module).values():
        if inspect.isclass(each) and issubclass(each, TIER_BASES[tier]) and each.__module__ == module.__name__:
            found |= {key.name: key for key in keys_of_model(each, besides=inherited, readme=readme)}
    return list(found.values())
