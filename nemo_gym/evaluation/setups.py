"""Find the differences between the setups of two runs by comparing their run records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.run_record import Fingerprint, RunRecord, read_record

POLICY_PREFIXES = ("policy_model_name ", "policy_model.")
SAMPLING = ("num_repeats", "num_repeats_add_seed")
OTHERS = ("agent_name", "limit", "skills", "rollout_timeout_s", "max_attempts")
DIGITS = 12

Kind = Literal["model", "prompt", "sampling", "data", "version", "settings", "record"]


class SetupDifference(NamedTuple):
    kind: Kind
    text: str

    @property
    def is_intended(self) -> bool:
        """Whether the difference is in the policy model. Most comparisons are made between policy models."""
        return self.kind == "model"


def setup_differences(a: Path, b: Path) -> list[SetupDifference]:
    """Return the differences between the run records of two runs. A missing record also counts as a difference."""
    records = [read_record(RunFiles(results=path).record) for path in (a, b)]
    missing = [
        SetupDifference("record", f"{RunFiles(results=path).record} is missing, so the settings are not compared")
        for path, record in zip((a, b), records, strict=True)
        if record is None
    ]
    before, after = records
    return missing if before is None or after is None else list(_differences(before, after))


def _differences(a: RunRecord, b: RunRecord) -> Iterator[SetupDifference]:
    models = b.subject.differences_from(a.subject)
    for text in models:
        yield SetupDifference("model" if text.startswith(POLICY_PREFIXES) else "settings", text)
    if _digest(a.prompt) != _digest(b.prompt):
        yield SetupDifference("prompt", f"{_shown(a.prompt)} → {_shown(b.prompt)}")
    if a.input.sha256 != b.input.sha256:
        text = f"{_shown(a.input)} → {_shown(b.input)}. If the order of the tasks differs, pair them with --key"
        yield SetupDifference("data", text)
    params = [record.settings.get("responses_create_params") or {} for record in (a, b)]
    for key in sorted({*params[0], *params[1]}):
        yield from _changed("sampling", key, params[0].get(key), params[1].get(key))
    for key in SAMPLING:
        yield from _changed("sampling", key, a.settings.get(key), b.settings.get(key))
    for key in OTHERS:
        yield from _changed("settings", key, a.settings.get(key), b.settings.get(key))
    for name in sorted({*a.versions, *b.versions}):
        yield from _changed("version", name, a.versions.get(name), b.versions.get(name))
    for name in sorted({*a.environments, *b.environments}):
        yield from _changed("version", f"environment {name}", a.environments.get(name), b.environments.get(name))
    if (a.regraded is None) != (b.regraded is None):
        again = "A" if a.regraded else "B"
        yield SetupDifference("settings", f"only {again} was graded again, so the servers' settings are not compared")
    # Compare the configuration hash only if the models are the same, because it includes the settings of the models.
    elif not models and a.config_hash != b.config_hash:
        yield SetupDifference("settings", "the settings of the servers (config_hash)")


def _changed(kind: Kind, name: str, a: object, b: object) -> Iterator[SetupDifference]:
    if a != b:
        yield SetupDifference(kind, f"{name} {_json(a)} → {_json(b)}")


def _json(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _digest(file: Fingerprint | None) -> str | None:
    return None if file is None else file.sha256


def _shown(file: Fingerprint | None) -> str:
    return "none" if file is None else f"{file.path} (sha256 {file.sha256[:DIGITS]})"
