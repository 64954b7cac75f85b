"""The models that a run calls and the settings of its servers, to compare a resumed run with the earlier one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import orjson
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.allowed_pairings import UNSUPPORTED_KEY
from nemo_gym.config.masking import is_secret_key, masked
from nemo_gym.config.models import RunConfig
from nemo_gym.config.settings import MODEL_TIER, SERVER_TYPES
from nemo_gym.jsonl import JsonObject

POLICY_NAME_KEY = "policy_model_name"

_ADDRESS = re.compile(r"(^|_)(host|port|address|urls?)$")
_OPERATION = re.compile(
    r"(^|_)(timeout|timeouts|retries|tries|attempts|concurrency|concurrent|workers|parallel|connections|limit|entrypoint"
    r"|s|seconds|log|debug)(_|$)"
)


class ServerBlock(NamedTuple):
    """A server's block in the configuration."""

    name: str
    tier: str
    implementation: str
    settings: Mapping[str, object]


class RunSubject(BaseModel):
    """The models and server settings of a run, without secrets and without addresses, which change between starts."""

    model_config = ConfigDict(frozen=True)

    models: dict[str, JsonObject] = Field(default_factory=dict)
    """The settings of each model server."""
    policy_model_name: str | None = None
    """The policy model's name; None if it is not set, or if the run has model servers but none of them uses it."""
    config_hash: str | None = None
    """A hash of all servers' settings."""
    unsupported_pairings: list[str] = Field(default_factory=list)
    """A message for each agent or model that the run uses although its environment does not allow it."""

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Return the subject of a run whose servers this process starts."""
        return cls._of(blocks_of_run(run), run.settings.policy_model_name, run.settings.unsupported_pairings)

    @classmethod
    def of_config(cls, config: DictConfig) -> Self:
        """Return the subject of a run from its head server's configuration."""
        policy_name, unsupported = (_resolved_if_possible(config, key) for key in (POLICY_NAME_KEY, UNSUPPORTED_KEY))
        return cls._of(list(blocks_of_config(config)), policy_name, unsupported)

    @classmethod
    def _of(cls, blocks: list[ServerBlock], policy_name: object, unsupported: object) -> Self:
        servers = {
            block.name: {"type": block.tier, "implementation": block.implementation, **_comparable(block.settings)}
            for block in blocks
        }
        text = orjson.dumps(servers, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
        models = [block.settings for block in blocks if block.tier == MODEL_TIER]
        # Omit the name if no model server uses it, as in a run of sample_model: no model of this name is called.
        is_read = policy_name is not None and (not models or any(_contains(each, policy_name) for each in models))
        return cls(
            models={name: block for name, block in servers.items() if block["type"] == MODEL_TIER},
            policy_model_name=str(policy_name) if is_read else None,
            config_hash=hashlib.sha256(text).hexdigest() if servers else None,
            unsupported_pairings=[str(each) for each in unsupported] if isinstance(unsupported, list) else [],
        )

    def differences_from(self, earlier: RunSubject) -> list[str]:
        """Return the changes in the models that both runs have, such as `policy_model_name qwen → llama`."""
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
                # Skip settings such as timeouts and concurrency, because they do not change which model is called.
                if values[0] != values[1] and values != renamed and not _OPERATION.search(key):
                    found.append(f"{name}.{key} {_shown(values[0])} → {_shown(values[1])}")
        return found


def _contains(settings: object, value: object) -> bool:
    if isinstance(settings, Mapping):
        return any(_contains(each, value) for each in settings.values())
    if isinstance(settings, list):
        return any(_contains(each, value) for each in settings)
    return settings == value


def _comparable(settings: Mapping[str, object]) -> JsonObject:
    kept = {
        str(key): _comparable(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if not _ADDRESS.search(str(key)) and not is_secret_key(str(key))
    }
    # Convert to plain JSON types, because the settings are compared with a record that was read from JSON.
    plain: JsonObject = orjson.loads(orjson.dumps(masked(kept), option=orjson.OPT_NON_STR_KEYS, default=str))
    return plain


def blocks_of_run(run: RunConfig) -> list[ServerBlock]:
    """Return the blocks of the servers that this process starts."""
    return [
        ServerBlock(server.name, server.type, server.implementation, server.settings)
        for server in run.servers.values()
    ]


def blocks_of_config(config: DictConfig) -> Iterator[ServerBlock]:
    """Yield the server blocks of a head server's configuration."""
    for name in config:
        block = _resolved_if_possible(config, str(name))
        for tier in SERVER_TYPES:
            implementations = block.get(tier) if isinstance(block, dict) else None
            for implementation, settings in implementations.items() if isinstance(implementations, dict) else ():
                # Skip blocks without `host` and `entrypoint`. They only override settings of servers in other runs.
                if isinstance(settings, dict) and ("host" in settings or "entrypoint" in settings):
                    yield ServerBlock(str(name), tier, str(implementation), settings)


def _resolved_if_possible(config: DictConfig, key: str) -> Any:
    """Return a value with its interpolations resolved, or unresolved if they cannot be resolved here.

    An interpolation may refer to a masked value, or to an environment variable of another machine.
    """
    for resolve in (True, False):
        try:
            value = config.get(key) if resolve else OmegaConf.to_container(config, resolve=False).get(key)  # type: ignore[union-attr]
            return OmegaConf.to_container(value, resolve=resolve) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException:
            continue
    return None


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"
