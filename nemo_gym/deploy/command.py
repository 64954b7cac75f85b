"""The command that writes manifests for a cluster."""

from __future__ import annotations

import shlex
from pathlib import Path

from nemo_gym import config
from nemo_gym.cli import printing, running
from nemo_gym.cli.flags import key_of
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.rollouts import COLLECT, COLLECT_WITH_SERVERS
from nemo_gym.deploy.plan import plan_of
from nemo_gym.deploy.render import rendered
from nemo_gym.deploy.settings import DeploySettings
from nemo_gym.errors import UsageError
from nemo_gym.rollouts.job import CollectJob

PROGRAM = "ng deploy render"
OWN = {key_of(name, info) for name, info in DeploySettings.model_fields.items()} - set(CollectJob.model_fields)
"""Settings of this command only. They are left out of the configuration that is deployed."""


def render(words: list[str]) -> int:
    """Print the manifests of a configuration, or write them to the file or folder of `--output`."""
    options = Options(PROGRAM, DeploySettings, takes_model=True, takes_sampling=True)
    line = options.read(words)
    own = [each for each in line.overrides if each.path[0] in DeploySettings.model_fields]
    settings = settings_from(DeploySettings, config.load([], own, skip_dotenv=True).plain)
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
