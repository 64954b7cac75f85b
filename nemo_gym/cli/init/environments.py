"""Create an environment in `environments/`, or a benchmark: its config and data, and the servers that it needs."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nemo_gym import paths
from nemo_gym.cli.init import TEMPLATE_NAME, TEMPLATES, TIER, problem_of_name, renamed, template_files
from nemo_gym.cli.init.guide import guide_to
from nemo_gym.cli.init.reuse import PLAIN_AGENT, Block, Reused, reused
from nemo_gym.cli.init.wanted import FOLDER_OF, NUMBER_VERIFIER, USUAL_RANGE, Profile, Wanted
from nemo_gym.config.settings import AGENT_TIER, MODEL_TIER, POLICY_MODEL, RESOURCES_TIER
from nemo_gym.contract.manifest import MANIFEST_FILE
from nemo_gym.data.scripts import ENVIRONMENTS
from nemo_gym.errors import DataError, UsageError
from nemo_gym.jsonl import write_rows

LAYER_OF: dict[Profile, str | None] = {
    "custom-gym-verifier": None,
    "custom-gym-agent-loop": "agent_loop",
    "external-agent-loop": "external_loop",
    "external-rollout-driver": "rollout_driver",
}
"""The folder of templates that each profile adds."""
OWN_AGENT: tuple[Profile, ...] = ("custom-gym-agent-loop", "external-agent-loop")
LINT_SETTINGS = TEMPLATES / TIER / TEMPLATE_NAME / "ruff.toml"
REWARDS = "WORST, BEST = 0.0, 1.0"
TRAIN_ROWS, VALIDATION_ROWS = 2000, 200


class Created(NamedTuple):
    """The result of creating an environment or benchmark: its folders, and the next steps for the user."""

    folders: tuple[Path, ...]
    next_steps: str


def create(wanted: Wanted, root: Path, spelled: Callable[[str], str] = str) -> Created:
    """Create the folders in `root`. If one cannot be created, remove the others.

    `spelled` returns the command for a program of this installation, to be shown in the next steps. Raise `UserError`
    for an invalid name, verifier, profile or range.
    """
    _check(wanted)
    verifier = reused(wanted.verifier) if wanted.verifier else None
    if verifier is not None:
        _check_agent(wanted, verifier)
    guide = guide_to(wanted, spelled, has_oracle=verifier is None or verifier.has_oracle)
    partial = root / f".{wanted.name}.{os.getpid()}.partial"
    made: list[Path] = []
    try:
        _write(wanted, verifier, partial)
        (partial / wanted.place / "README.md").write_text(guide.readme, "utf-8")
        for source in sorted(partial.glob("*/*")):
            target = root / source.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
            made.append(target)
    except OSError as error:
        for folder in made:
            shutil.rmtree(folder)
        raise DataError(f"{root}: cannot be written ({error.strerror}). Choose another working folder.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Created(tuple(made), guide.next_steps)


def _check(wanted: Wanted) -> None:
    if problem := problem_of_name(wanted.name):
        raise UsageError(f"{wanted.kind}: '{wanted.name}' is not a valid name: {problem}. Choose another name.")
    low, high = wanted.reward_range or USUAL_RANGE
    if not low < high:
        raise UsageError(f"reward_range: {low:g} is not less than {high:g}. Give the lowest reward, then the highest.")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(f"reward_range: {low:g} to {high:g} is not finite. Give two numbers, such as 0 and 1.")
    for tier in (*FOLDER_OF.values(), RESOURCES_TIER, AGENT_TIER):
        if there := paths.find(Path(tier, wanted.name)):
            raise DataError(f"{there} has the same name. Choose another name, or remove it first.")


def _check_agent(wanted: Wanted, verifier: Reused) -> None:
    played_by = verifier.agent.implementation
    if wanted.profile != "custom-gym-verifier" and played_by != PLAIN_AGENT:
        raise UsageError(
            f"reuse_verifier={wanted.verifier}: its rollouts need the agent {played_by}, but the profile "
            f"{wanted.profile} uses another agent. Choose the profile custom-gym-verifier, or another verifier."
        )


def _write(wanted: Wanted, verifier: Reused | None, root: Path) -> None:
    for layer in _layers(wanted):
        _copy(TEMPLATES / layer, root, wanted)
    folder = root / wanted.place
    if verifier is not None:
        write_rows(folder / "data" / "example.jsonl", verifier.rows)
        if wanted.kind == "benchmark":
            write_rows(folder / "tasks.jsonl", verifier.rows)
    ignored = "# Made by prepare.py.\n*\n!.gitignore\n!example*\n"
    (folder / "data" / ".gitignore").write_text(ignored, "utf-8")
    _write_yaml(folder / "config.yaml", f"# {wanted.origin}.\n", _config(wanted, verifier))
    _write_yaml(folder / MANIFEST_FILE, "", _manifest(wanted, verifier))
    for each in root.glob("*/*"):
        shutil.copyfile(LINT_SETTINGS, each / "ruff.toml")


def _layers(wanted: Wanted) -> list[str]:
    if wanted.verifier is not None:
        own = ["reused", *(["reused_benchmark"] if wanted.kind == "benchmark" else [])]
    else:
        own = ["benchmark" if wanted.kind == "benchmark" else "verifier"]
    added = LAYER_OF[wanted.profile]
    return [*own, *([added] if added else [])]


def _copy(template: Path, root: Path, wanted: Wanted) -> None:
    """Copy a folder of templates. If a benchmark is created, files in `environments/` go to `benchmarks/` instead."""
    low, high = wanted.reward_range or USUAL_RANGE
    worst, best = (low, high) if wanted.higher_is_better else (high, low)
    for source in template_files(template):
        text = source.read_text("utf-8").replace(REWARDS, f"WORST, BEST = {worst}, {best}")
        relative = _for_kind(source.relative_to(template).as_posix(), wanted)
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_for_kind(text, wanted), "utf-8")


def _for_kind(text: str, wanted: Wanted) -> str:
    folder = FOLDER_OF[wanted.kind]
    for separator in "/.":
        text = text.replace(f"{ENVIRONMENTS}{separator}{TEMPLATE_NAME}", f"{folder}{separator}{TEMPLATE_NAME}")
    return renamed(text, wanted.name)


def _config(wanted: Wanted, verifier: Reused | None) -> Mapping[str, object]:
    server = _server(wanted, verifier)
    agent = _agent(wanted, verifier)
    references = {
        "resources_server": {"type": RESOURCES_TIER, "name": wanted.name},
        "model_server": agent.settings.get("model_server", {"type": MODEL_TIER, "name": POLICY_MODEL}),
    }
    settings = {**agent.settings, **references, "datasets": _datasets(wanted, verifier)}
    suffix = "agent" if wanted.profile in OWN_AGENT else agent.implementation
    return {
        **(verifier.others if verifier else {}),
        wanted.name: {RESOURCES_TIER: {server.implementation: server.settings}},
        f"{wanted.name}_{suffix}": {AGENT_TIER: {agent.implementation: settings}},
    }


def _server(wanted: Wanted, verifier: Reused | None) -> Block:
    description = {"description": wanted.origin}
    if verifier is not None:
        return Block(verifier.server.implementation, {**verifier.server.settings, **description})
    settings = {"entrypoint": "app.py", "domain": "other", "verified": False, **description}
    if wanted.kind == "benchmark":
        return Block(NUMBER_VERIFIER, {**settings, "grader": "number"})
    return Block(wanted.name, settings)


def _agent(wanted: Wanted, verifier: Reused | None) -> Block:
    if wanted.profile in OWN_AGENT:
        return Block(wanted.name, {"entrypoint": "app.py"})
    return verifier.agent if verifier is not None else Block(PLAIN_AGENT, {"entrypoint": "app.py"})


def _datasets(wanted: Wanted, verifier: Reused | None) -> list[Mapping[str, object]]:
    place = wanted.place
    is_prompted = wanted.kind == "benchmark" and verifier is None
    prompt = {"prompt_config": f"{place}/prompts/default.yaml"} if is_prompted else {}
    example = {"name": "example", "type": "example", "jsonl_fpath": f"{place}/data/example.jsonl", **prompt}
    if wanted.kind == "benchmark":
        benchmark = {
            "name": wanted.name,
            "type": "benchmark",
            "jsonl_fpath": f"{place}/data/{wanted.name}.jsonl",
            "prepare_script": f"{place}/prepare.py",
            **prompt,
            "num_repeats": 1,
        }
        return [benchmark, example]
    if verifier is not None:
        return [*verifier.datasets, example]
    made = [
        {
            "name": split,
            "type": split,
            "jsonl_fpath": f"{place}/data/{split}.jsonl",
            "prepare_script": f"{place}/prepare.py",
            "prepare_args": {"split": split, "count": count},
            "license": "Apache 2.0",
        }
        for split, count in (("train", TRAIN_ROWS), ("validation", VALIDATION_ROWS))
    ]
    return [*made, example]


def _manifest(wanted: Wanted, verifier: Reused | None) -> Mapping[str, object]:
    limits = wanted.declared_range
    server = _server(wanted, verifier)
    return {
        "name": wanted.name,
        "kind": wanted.kind,
        "integration_profile": wanted.profile,
        "domain": server.settings.get("domain", "other"),
        "description": server.settings["description"],
        "licensing": "unknown",
        "reward": {**({"range": list(limits)} if limits else {}), "higher_is_better": wanted.higher_is_better},
        "resources_server": server.implementation,
        "agent_server": _agent(wanted, verifier).implementation,
        **({"rollout_driver": "driver.py"} if wanted.profile == "external-rollout-driver" else {}),
    }


def _write_yaml(path: Path, comment: str, content: Mapping[str, object]) -> None:
    path.write_text(
        comment + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=119), "utf-8"
    )


class _Dumper(yaml.SafeDumper):
    """A writer of YAML in the style of the shipped configs: indented lists, and short collections in one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        node.flow_style = len(node.value) <= 2 and all(isinstance(each, yaml.ScalarNode) for _, each in node.value)
        return node

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence, flow_style)
        node.flow_style = all(isinstance(each, yaml.ScalarNode) for each in node.value)
        return node
