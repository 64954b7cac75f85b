"""The command that turns scored rollouts into training data."""

from __future__ import annotations

from nemo_gym.cli import printing, tables
from nemo_gym.cli.options import Options
from nemo_gym.text import counted
from nemo_gym.training.dataset import DatasetJob, export_dataset


def dataset(words: list[str]) -> int:
    """Write the training examples of a collection, and print how many rollouts were kept and dropped."""
    summary = "Turn scored rollouts into training data: single rollouts, preference pairs or rated rollouts."
    job = Options("ng_export", DatasetJob, summary, takes_config=False).settings(words)
    report = export_dataset(job)
    tables.show(tables.kept_and_dropped(report.kept, report.dropped))
    dropped = report.dropped.total()
    printing.say(f"{counted(report.read, 'rollout')} read = {report.kept} kept + {dropped} dropped")
    for path, count in report.examples.items():
        printing.say(f"{counted(count, 'example')}: {path}")
    return 0
