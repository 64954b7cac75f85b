"""The command `ng eval compare`, which compares runs task by task and checks the conditions given as gates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveInt
from rich.table import Column

from nemo_gym.cli import printing, tables
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import JsonSettings
from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from nemo_gym.evaluation.report import Report, Section

GATE_VIOLATED = 3


class CompareSettings(JsonSettings):
    """Parameters of `ng eval compare`."""

    runs: list[Path] = Field(default_factory=list)
    """The rollout files. Each is compared with the first."""
    by: str | None = None
    """A row field that divides the tasks into subsets, such as subject."""
    key: str | None = None
    """A row field that identifies the task, for runs over different input files. Default: the task's index."""
    metric: list[str] = Field(default_factory=list)
    """A metric to compare; may be repeated. Default: the reward, pass@k, and each score of the rollouts."""
    pass_at: PositiveInt | None = None
    """The k of pass@k. Default: the number of repeats that most tasks have."""
    gate: list[str] = Field(default_factory=list)
    """A condition such as 'mcqa.accuracy >= -0.01'; may be repeated. Exit with code 3 unless all hold. None holds if
    the runs have other data (without --key), other agents or too few tasks in common, or if a run has no answers."""
    min_coverage: Annotated[float, Field(ge=0, le=1)] = 0.95
    """The least share of the tasks that both runs must have. With fewer, no gate holds."""
    waivers: Path | None = None
    """A YAML file of known regressions, each with the keys name, gate, until and reason."""
    markdown: bool = False
    """Print Markdown, for a pull request."""


def compare(words: list[str]) -> int:
    summary = (
        "Compare runs task by task: ng eval compare A.jsonl B.jsonl [C.jsonl …]. Each run is compared with the first, "
        "with 95% intervals."
    )
    options = Options("ng_compare", CompareSettings, summary, takes_config=False, named_by="runs")
    settings = options.settings(words)
    if settings.as_json and settings.markdown:
        raise UsageError("--json and --markdown: pass only one of them.")
    if len(settings.runs) < 2:
        raise UsageError(f"runs: two or more rollout files are needed, got {len(settings.runs)}.")
    report = _report(settings)
    for waiver in report.expired:
        printing.note(
            f"Error: {settings.waivers}: the waiver '{waiver.name}' expired on {waiver.until}, so it has no effect. "
            "Remove or renew it."
        )
    for waiver in report.unused:
        gates = ", ".join(f"'{each}'" for each in settings.gate) or "none"
        printing.note(
            f"Error: {settings.waivers}: the waiver '{waiver.name}' of '{waiver.gate}' matches none of the gates: "
            f"{gates}. Correct or remove the waiver."
        )
    if settings.as_json:
        printing.say_json(report.as_dict())
    elif settings.markdown:
        from nemo_gym.evaluation.markdown import markdown

        printing.say(markdown(report).rstrip("\n"))
    else:
        _show(report)
    return GATE_VIOLATED if report.is_violated else 0


def _report(settings: CompareSettings) -> Report:
    # Import these modules here, because they import numpy, which --help and the argument checks do not need.
    from nemo_gym.evaluation.comparison import Selection
    from nemo_gym.evaluation.comparison import compare as compared
    from nemo_gym.evaluation.gates import decide, parse_gate
    from nemo_gym.evaluation.obstacles import obstacles
    from nemo_gym.evaluation.report import Report
    from nemo_gym.evaluation.setups import setup_differences
    from nemo_gym.evaluation.waivers import read_waivers

    gates = [parse_gate(text) for text in settings.gate]
    waivers = read_waivers(settings.waivers) if settings.waivers else []
    selection = Selection(settings.key, settings.by, settings.metric, settings.pass_at)
    found = compared(settings.runs, selection)
    return Report(
        comparisons=found,
        setups=[setup_differences(each.a.path, each.b.path) for each in found],
        obstacles=[
            obstacles(each, is_paired_by_key=settings.key is not None, min_coverage=settings.min_coverage)
            if gates
            else []
            for each in found
        ],
        decisions=decide(gates, found),
        waivers=waivers,
        today=datetime.now(UTC).date(),
    )


def _show(report: Report) -> None:
    from nemo_gym.evaluation.report import LETTERS, difference_text, gate_lines, sections

    console = tables.console()
    console.print(tables.safe(f"A: {report.comparisons[0].a.path}"))
    for letter, comparison, setup in zip(LETTERS[1:], report.comparisons, report.setups, strict=False):
        console.print(tables.safe(f"{letter}: {comparison.b.path}"))
        for difference in setup:
            prefix = "   " if difference.is_intended else "   warning: "
            console.print(tables.safe(f"{prefix}{difference_text(difference)}"))
    for letter, comparison in zip(LETTERS[1:], report.comparisons, strict=False):
        for section in sections(comparison, letter):
            console.print()
            console.print(tables.safe(section.heading, "bold"))
            console.print(_table(section))
            for line in section.lines:
                console.print(tables.safe(line))
    if report.decisions:
        console.print()
        for line in gate_lines(report):
            console.print(tables.safe(line))


def _table(section: Section) -> tables.Table:
    columns = [
        Column(name, justify="left" if name in ("subset", "metric") else "right", overflow="fold")
        for name in section.columns
    ]
    table = tables.Table(*columns, padding=(0, 1, 0, 0))
    for cells in section.rows:
        table.add_row(*cells)
    return table
