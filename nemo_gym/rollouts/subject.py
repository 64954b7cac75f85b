"""What a run is about beside its rows: the models it asks, and the servers' settings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import orjson
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.masking import is_secret_key, masked
from nemo_gym.config.models import RunConfig
from nemo_gym.config.settings import SERVER_TYPES

MODEL_TIER = "responses_api_models"
POLICY_NAME_KEY = "policy_model_name"

_ADDRESS = re.compile(r"(^|_)(host|port|address|urls?)$")
_OPERATION = re.compile(
    r"(^|_)(timeout|timeouts|retries|tries|attempts|concurrency|concurrent|workers|parallel|connections|limit|entrypoint"
    r"|s|seconds|log|debug)(_|$)"
)


class ServerBlock(NamedTuple):
    """One server as the configuration describes it."""

    name: str
    tier: str
    implementation: str
    settings: Mapping[str, Any]


class RunSubject(BaseModel):
    """Holds neither addresses nor secrets: those change from one start to the next, and may not be written down."""

    model_config = ConfigDict(frozen=True)

    models: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The settings of each model server."""
    policy_model_name: str | None = None
    config_hash: str | None = None
    """Of the settings of all servers."""

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Of servers that this process starts."""
        return cls._of(blocks_of_run(run), run.plain.get(POLICY_NAME_KEY))

    @classmethod
    def of_config(cls, config: DictConfig) -> Self:
        """Of servers that are up, by what their head server tells."""
        return cls._of(list(blocks_of_config(config)), _plain(config, POLICY_NAME_KEY))

    @classmethod
    def _of(cls, blocks: list[ServerBlock], policy_name: Any) -> Self:
        told = {
            block.name: {"type": block.tier, "implementation": block.implementation, **_telling(block.settings)}
            for block in blocks
        }
        text = orjson.dumps(told, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
        return cls(
            models={name: block for name, block in told.items() if block["type"] == MODEL_TIER},
            policy_model_name=None if policy_name is None else str(policy_name),
            config_hash=hashlib.sha256(text).hexdigest() if told else None,
        )

    def differences_from(self, earlier: RunSubject) -> list[str]:
        """What of the models that both name is not as it was: `policy_model_name qwen → llama`."""
        found = []
        renamed = None
        before, now = earlier.policy_model_name, self.policy_model_name
        if before and now and before != now:
            renamed = (before, now)
            found.append(f"{POLICY_NAME_KEY} {renamed[0]} → {renamed[1]}")
        for name in earlier.models.keys() & self.models.keys():
            old, new = earlier.models[name], self.models[name]
            for key in sorted(old.keys() | new.keys()):
                values = (old.get(key), new.get(key))
                # What only says how a model is reached or how hard it is pressed does not make it another one.
                if values[0] != values[1] and values != renamed and not _OPERATION.search(key):
                    found.append(f"{name}.{key} {_shown(values[0])} → {_shown(values[1])}")
        return found


def _telling(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        str(key): _telling(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if not _ADDRESS.search(str(key)) and not is_secret_key(str(key))
    }
    # As it will be read again: numbers, texts, lists and objects.
    plain: dict[str, Any] = orjson.loads(orjson.dumps(masked(kept), option=orjson.OPT_NON_STR_KEYS, default=str))
    return plain


def blocks_of_run(run: RunConfig) -> list[ServerBlock]:
    """The servers that this process starts."""
    return [
        ServerBlock(server.name, server.type, server.implementation, server.settings)
        for server in run.servers.values()
    ]


def blocks_of_config(config: DictConfig) -> Iterator[ServerBlock]:
    """The servers that are up, by what their head server tells."""
    for name in config:
        block = _plain(config, str(name))
        for tier in SERVER_TYPES:
            implementations = block.get(tier) if isinstance(block, dict) else None
            for implementation, settings in implementations.items() if isinstance(implementations, dict) else ():
                if isinstance(settings, dict):
                    yield ServerBlock(str(name), tier, str(implementation), settings)


def _plain(config: DictConfig, key: str) -> Any:
    """A value with its interpolations resolved where they can be: a mask, or another machine's variable, cannot."""
    for resolve in (True, False):
        try:
            value = config.get(key) if resolve else OmegaConf.to_container(config, resolve=False).get(key)  # type: ignore[union-attr]
            return OmegaConf.to_container(value, resolve=resolve) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException:
            continue
    return None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"
