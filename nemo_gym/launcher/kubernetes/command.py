"""The command that writes manifests for a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from nemo_gym.cli import printing, running
from nemo_gym.cli.flags import key_of
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.rollouts import COLLECT, COLLECT_WITH_SERVERS
from nemo_gym.config.loading import load
from nemo_gym.errors import UsageError
from nemo_gym.launcher.kubernetes.collection import ROWS_FILE
from nemo_gym.launcher.kubernetes.compose import compose_file
from nemo_gym.launcher.kubernetes.kuberay import kuberay_objects
from nemo_gym.launcher.kubernetes.objects import kubernetes_objects
from nemo_gym.launcher.kubernetes.plan import CONFIG_FILE, Plan, plan_of
from nemo_gym.launcher.kubernetes.pods import ENV_YAML, TOKEN_VARIABLE
from nemo_gym.launcher.kubernetes.settings import DeploySettings
from nemo_gym.rollouts.job import CollectJob

PROGRAM = "ng deploy render"
OWN = {key_of(name, info) for name, info in DeploySettings.model_fields.items()} - set(CollectJob.model_fields)
"""Settings of this command only. They are left out of the configuration that is deployed."""
COMPOSE_FILE = "compose.yaml"


def render(words: list[str]) -> int:
    """Print the manifests of a configuration, or write them to the file or folder of `--output`."""
    options = Options(PROGRAM, DeploySettings, takes_model=True, takes_sampling=True)
    line = options.read(words)
    own = [each for each in line.overrides if each.path[0] in DeploySettings.model_fields]
    settings = settings_from(DeploySettings, load([], own, skip_dotenv=True).plain)
    if settings.target == "compose" and settings.output_fpath is None:
        raise UsageError("--target compose writes a Compose file and the config: add --output FOLDER.")
    others = [each for each in line.overrides if each.path[0] not in OWN]
    collect = COLLECT_WITH_SERVERS if settings.target == "kuberay" else COLLECT
    plan = plan_of(line.paths, others, settings, shlex.join([*PROGRAM.split(), *words]), collect.spelled)
    # Check the chosen agents and the settings now, so that errors show here instead of in the cluster.
    run = running.with_checked_pairing(plan.run)
    if plan.collection is not None:
        settings_from(CollectJob, {**plan.collection.values, "input_jsonl_fpath": "-", "output_jsonl_fpath": "-"})
    for note in plan.notes:
        printing.note(note)
    for text in run.notes:
        printing.note(f"note: {text}")
    files = rendered(plan)
    if settings.output_fpath is None:
        printing.say_document(next(iter(files.values())))
        return 0
    for name, text in files.items():
        _write(settings.output_fpath / name if settings.target == "compose" else settings.output_fpath, text)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror}. Name a file that can be written.") from error
    printing.note(f"wrote {path}")


def rendered(plan: Plan) -> dict[str, str]:
    """Return the files of a plan by name. The first file is the manifest. Only a Compose file needs further files."""
    if plan.settings.target == "compose":
        rows = plan.collection.rows if plan.collection else None
        files = {COMPOSE_FILE: _header(plan) + _as_yaml(compose_file(plan)), CONFIG_FILE: plan.config_text}
        return files | ({ROWS_FILE: rows} if rows is not None else {})
    objects = kuberay_objects(plan) if plan.settings.target == "kuberay" else kubernetes_objects(plan)
    return {"manifest.yaml": _header(plan) + "---\n".join(map(_as_yaml, objects))}


def _header(plan: Plan) -> str:
    needs = [plan.needs] if plan.settings.target == "kuberay" else [part.needs for part in plan.parts]
    optional = {name for each in needs for name, may_be_missing in each.variables.items() if may_be_missing}
    required = {name for each in needs for name in each.variables} - optional
    wanted = sorted({key for each in needs for key in each.open_keys})
    is_compose = plan.settings.target == "compose"
    keys = [TOKEN_VARIABLE if is_compose else "run_token", *sorted(required)]
    keys += [f"{name} (optional)" for name in sorted(optional - required)]
    keys += [f"{ENV_YAML} (which sets {', '.join(wanted)})"] if wanted else []
    needed = "the variables or files" if is_compose else f"the Secret {plan.secret} with"
    # Remove line breaks, because a YAML comment has only one line.
    command = plan.command.replace("\n", " ")
    return f"# {command}\n# Needs {needed} {', '.join(keys)}.\n"


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that does not write aliases. Strings of several lines become literal blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style: str | None = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _as_yaml(value: Any) -> str:
    lines: Iterable[str] = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
    return "".join(lines)
