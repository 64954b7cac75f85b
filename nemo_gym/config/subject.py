"""The models that a run calls and the settings of its servers, to compare a resumed run with the earlier one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Self

import orjson
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config.masking import is_secret_key, masked
from nemo_gym.config.models import RunConfig
from nemo_gym.config.settings import MODEL_TIER
from nemo_gym.jsonl import JsonObject
from nemo_gym.plugins import CONTENTS, offered

_ADDRESS = re.compile(r"(^|_)(host|port|address|urls?)$")
_HEADERS = re.compile(r"(^|_)headers?$")
_OPERATION = re.compile(
    r"(^|_)(timeout|timeouts|retries|tries|attempts|concurrency|concurrent|workers|parallel|connections|limit|entrypoint"
    r"|s|seconds|log|debug)(_|$)"
)


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
    environments: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The version and the digest of each installed package with an environment of the run, by the package's name."""

    @classmethod
    def of_run(cls, run: RunConfig) -> Self:
        """Return the subject of a run. Raise `ConfigError` if files of a packed environment have been changed."""
        servers = {
            name: {"type": server.type, "implementation": server.implementation, **_comparable(server.settings)}
            for name, server in run.servers.items()
        }
        text = orjson.dumps(servers, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
        models, policy_name = run.servers_of(MODEL_TIER), run.settings.policy_model_name
        # Omit the name if no model server uses it, as in a run of sample_model: no model of this name is called.
        is_read = not models or any(_contains(model.settings, policy_name) for model in models)
        return cls(
            models={name: block for name, block in servers.items() if block["type"] == MODEL_TIER},
            policy_model_name=policy_name if is_read else None,
            config_hash=hashlib.sha256(text).hexdigest() if servers else None,
            unsupported_pairings=list(run.settings.unsupported_pairings),
            environments={name: about for found in offered(CONTENTS).values() for name, about in found(run).items()},
        )

    def differences_from(self, earlier: RunSubject) -> list[str]:
        """Return the changes in the models that both runs have, such as `policy_model_name qwen → llama`."""
        found = []
        renamed = None
        before, now = earlier.policy_model_name, self.policy_model_name
        if before and now and before != now:
            renamed = (before, now)
            found.append(f"policy_model_name {renamed[0]} → {renamed[1]}")
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
        # The value of a header with any name may be a login.
        if not _ADDRESS.search(str(key)) and not _HEADERS.search(str(key)) and not is_secret_key(str(key))
    }
    # Convert to plain JSON types, because the settings are compared with a record that was read from JSON.
    plain: JsonObject = orjson.loads(orjson.dumps(masked(kept), option=orjson.OPT_NON_STR_KEYS, default=str))
    return plain


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}…"
