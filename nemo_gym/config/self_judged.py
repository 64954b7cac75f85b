"""Find the environments of a run whose policy judges its own answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from nemo_gym.config.models import RunConfig
from nemo_gym.config.settings import MODEL_TIER

JUDGE_FLAVOR = "judge.yaml"
"""The config of a benchmark's flavor with a separate judge, next to the config without one."""


def self_judged(run: RunConfig) -> Iterator[str]:
    """Yield a line for each resources server whose judge is the model of an agent that uses the server."""
    for server in run.servers_of("resources_servers"):
        policies = {
            agent.referred("model_server")
            for agent in run.servers_of("responses_api_agents")
            if agent.referred("resources_server") == server.name
        }
        for judge in sorted(set(_judges_in(server.settings)) & policies - {""}):
            yield (
                f"the policy judges its own answers: the judge of {server.name} is '{judge}', which also answers. "
                f"Such a judge is often too kind. {_advice(run)}"
            )


def _advice(run: RunConfig) -> str:
    flavors = [Path(path).parent.name for path in run.config_paths if Path(path).with_name(JUDGE_FLAVOR).is_file()]
    if flavors:
        return f"For a separate judge, choose --benchmark {flavors[0]}/{Path(JUDGE_FLAVOR).stem}."
    return "For a separate judge, name another model server in its config."


def _judges_in(settings: object, *, is_judge: bool = False) -> Iterator[str]:
    """Yield the model servers to which settings below a key of a judge refer."""
    if not isinstance(settings, Mapping):
        return
    if is_judge and settings.get("type") == MODEL_TIER:
        yield str(settings.get("name", ""))
    for key, value in settings.items():
        yield from _judges_in(value, is_judge=is_judge or "judge" in str(key))
