"""Commands for custom evaluations: create the benchmark folder, and compare its grader with human labels."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, PositiveInt

from nemo_gym.cli import printing
from nemo_gym.cli.options import Options
from nemo_gym.cli.settings import CommandSettings
from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.questions import AnswerForm, Columns, Grader
from nemo_gym.jsonl import dump_json
from nemo_gym.labelling.agreement_report import agreement_json, agreement_text
from nemo_gym.labelling.labels import SampleJob, agreement_with, read_labels, write_sample
from nemo_gym.labelling.own_evaluation import OwnEvaluation, create
from nemo_gym.text import counted


class InitSettings(CommandSettings):
    """Parameters of `ng eval init`."""

    name: str
    """The name of the benchmark: letters, digits and underscores."""
    source: Path = Field(alias="from")
    """The questions: a .csv, .xlsx or .jsonl file with one question per row."""
    question: str
    """The column with the questions."""
    answer: str | None = None
    """The column with the expected answers. Required unless the grader is 'rubric'."""
    grader: Grader
    """How answers are graded."""
    options: str | None = None
    """For 'choice': the column with the options, separated by '|'. Default: all answers of the table."""
    answer_is: AnswerForm = "text"
    """For --options: whether an answer is the text of an option, its letter (A, B, …) or its index from 0."""
    subset: str | None = None
    """A column that divides the questions into subsets. Metrics are also computed for each subset."""
    system: str | None = None
    """A system prompt for all questions, or the column with one for each question."""
    image: str | None = None
    """The column with the images: URLs, or files in the table's folder or below it."""
    train_share: float = Field(default=0.0, ge=0.0, lt=1.0)
    """The share of the questions, from 0 to 1, that are for training: `--split train`, not in the benchmark."""
    rubric: Path | None = None
    """For 'rubric': a Markdown file with the criteria and their weights."""


class LabelSettings(CommandSettings):
    """Parameters of `ng eval label`."""

    rollouts_jsonl_fpath: Path
    """The rollouts: the output of a collection."""
    output: Path | None = None
    """The CSV file to write, with a sample of the rollouts to label."""
    sample: PositiveInt = 50
    """The number of rollouts to label, shared between the grader's verdicts as evenly as possible."""
    seed: int = 0
    """The random seed. The same seed draws the same sample."""
    score: Path | None = None
    """A file with labels. If given, the command compares them with the grader and does not write a sample."""
    overwrite: bool = False
    """Replace an existing CSV file."""
    as_json: bool = Field(default=False, alias="json")
    """Print the agreement as JSON."""


def init(words: list[str]) -> int:
    """Create a benchmark folder from a table of questions."""
    summary = "Create a benchmark from a table of questions, in benchmarks/<name> of the working folder."
    settings = Options("ng eval init", InitSettings, summary, takes_config=False, named_by="name").settings(words)
    columns = Columns(
        settings.question,
        settings.answer,
        settings.options,
        settings.subset,
        settings.answer_is,
        image=settings.image,
    )
    wanted = OwnEvaluation(
        settings.name,
        settings.source,
        settings.grader,
        columns,
        settings.rubric,
        settings.system,
        settings.train_share,
    )
    created = create(wanted, Path.cwd())
    for note in created.notes:
        printing.note(f"note: {note}")
    printing.say(created.next_steps)
    return 0


def label(words: list[str]) -> int:
    """Write a sample of rollouts for people to label, or compare their labels with the grader."""
    summary = "Sample rollouts to a CSV file for people to label, or (--score) compare their labels with the grader."
    options = Options("ng eval label", LabelSettings, summary, takes_config=False, named_by="rollouts_jsonl_fpath")
    settings = options.settings(words)
    rollouts = settings.rollouts_jsonl_fpath
    if (settings.score is None) == (settings.output is None):
        raise UsageError(
            "Choose either --output LABELS.csv, to write a sample, or --score LABELS.csv, to compare its labels with "
            "the grader."
        )
    if settings.score is not None:
        agreement = agreement_with(rollouts, read_labels(settings.score))
        shown = dump_json(agreement_json(agreement)).decode() if settings.as_json else agreement_text(agreement)
        printing.say(shown)
        return 0
    assert settings.output is not None
    if settings.output.exists() and not settings.overwrite:
        raise DataError(
            f"{settings.output} already exists, and may contain labels. Choose another name, or pass --overwrite."
        )
    sample = write_sample(SampleJob(rollouts, settings.output, settings.sample, settings.seed))
    shares = ", ".join(f"{count} of {sample.all[verdict]} '{verdict}'" for verdict, count in sample.drawn.items())
    printing.say(f"{settings.output}: {counted(sum(sample.drawn.values()), 'rollout')} to label ({shares})")
    return 0
