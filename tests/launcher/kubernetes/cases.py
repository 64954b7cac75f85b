"""Configs to deploy, and the manifests of `ng deploy render` for them."""

from __future__ import annotations

import contextlib
import functools
import io
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nemo_gym.cli.main import main

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[2]
ROWS = "resources_servers/mcqa/data/example.jsonl"

Object = dict[str, Any]


class Rendered(NamedTuple):
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


class Case(NamedTuple):
    """One command line of `ng deploy render`."""

    name: str
    words: tuple[str, ...]

    @property
    def golden(self) -> Path:
        """The file with the expected manifest."""
        return FOLDER / "golden" / f"{self.name}.yaml"


def _config(name: str) -> tuple[str, ...]:
    return ("--config", f"tests/launcher/kubernetes/configs/{name}.yaml", "--image", "registry.example.com/nemo-gym:1")


KUBERNETES = [
    Case("endpoint", (*_config("endpoint"), "--input", ROWS, "--agent", "mcqa_simple_agent")),
    Case(
        "judge",
        (*_config("judge"), "--name", "judged", "--namespace", "evaluations", "--results-claim", "shared", "--input",
         "tests/launcher/kubernetes/rows.jsonl", "--agent", "short_answer_judge_simple_agent", "--temperature", "0.5"),
    ),
    Case("replicas", _config("replicas")),
]  # fmt: skip
KUBERAY = [
    Case("kuberay_endpoint", (*_config("endpoint"), "--target", "kuberay", "--split", "example")),
    Case("kuberay_judge", (*_config("judge"), "--target", "kuberay", "--agent", "short_answer_judge_simple_agent")),
    Case("kuberay_replicas", (*_config("replicas"), "--target", "kuberay", "--split", "example")),
]
COMPOSE = [
    Case(
        "compose_judge", (*_config("judge"), "--target", "compose", "--input", "tests/launcher/kubernetes/rows.jsonl")
    ),
    Case("compose_replicas", (*_config("replicas"), "--target", "compose")),
]


def render(*words: str | Path, cwd: Path = REPOSITORY) -> Rendered:
    """Run `ng deploy render` in a folder, in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(["deploy", "render", *map(str, words)])
        except SystemExit as end:
            code = int(end.code or 0)
    return Rendered(code, output.getvalue(), errors.getvalue())


def written(case: Case, tmp_path: Path) -> str:
    """Return the manifest of a case."""
    is_compose = case in COMPOSE
    done = render(*case.words, *(("--output", tmp_path / case.name) if is_compose else ()))
    assert done.returncode == 0, done.stderr
    if not is_compose:
        return done.stdout
    # The header has the command, and so the temporary folder.
    return (tmp_path / case.name / "compose.yaml").read_text().replace(str(tmp_path), "FOLDER")


def objects_of(text: str) -> list[Object]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all(text))


@functools.cache
def golden(name: str) -> list[Object]:
    """Return the objects of a golden file, which a test compares with the command's output."""
    return objects_of((FOLDER / "golden" / f"{name}.yaml").read_text())


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pods_of(objects: list[Object]) -> dict[str, Object]:
    """Return the pod templates of all objects, by the name of the object and of the group."""
    found: dict[str, Object] = {}
    for each in objects:
        name, spec = each["metadata"]["name"], each.get("spec", {})
        if each["kind"] in ("Deployment", "Job"):
            found[name] = spec["template"]
        elif each["kind"] == "RayJob":
            cluster = spec["rayClusterSpec"]
            found[f"{name}/submitter"] = spec["submitterPodTemplate"]
            found[f"{name}/head"] = cluster["headGroupSpec"]["template"]
            found |= {f"{name}/{group['groupName']}": group["template"] for group in cluster["workerGroupSpecs"]}
    return found


def containers_of(pod: Object) -> list[Object]:
    """Return all containers of a pod template."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
