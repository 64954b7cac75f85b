"""Write the manifests of a run as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from nemo_gym.deploy.collection import ROWS_FILE
from nemo_gym.deploy.compose import compose_file
from nemo_gym.deploy.kuberay import kuberay_objects
from nemo_gym.deploy.kubernetes import kubernetes_objects
from nemo_gym.deploy.plan import CONFIG_FILE, Plan
from nemo_gym.deploy.pods import ENV_YAML, TOKEN_KEY, TOKEN_VARIABLE

COMPOSE_FILE = "compose.yaml"


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
    keys = [TOKEN_VARIABLE if is_compose else TOKEN_KEY, *sorted(required)]
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
