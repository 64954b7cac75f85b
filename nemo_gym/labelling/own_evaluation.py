"""Create the folder of a custom evaluation: a benchmark from a table of questions."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import NamedTuple

from nemo_gym import paths
from nemo_gym.cli.init import TEMPLATES, problem_of_name
from nemo_gym.data.scripts import BENCHMARKS
from nemo_gym.errors import DataError, UsageError
from nemo_gym.evaluation.questions import (
    COMPARED,
    IMAGES,
    Columns,
    Grader,
    copy_images,
    divided,
    questions_of,
    write_questions,
)
from nemo_gym.evaluation.sheets import MissingColumn, read_sheet
from nemo_gym.grading import read_rubric
from nemo_gym.text import counted

TEMPLATE = TEMPLATES / "own_evaluation"
FILES = ("config.yaml", "prepare.py.txt", "README.md", "calibration.md")
RUBRIC = "rubric.md"
LINE = "\n\n  End with a line of the form 'Answer: …' that holds nothing but the answer."


TRAIN_DATASET = Template("""\
        - name: train
          type: train
          jsonl_fpath: benchmarks/$name/data/train.jsonl
          prepare_script: benchmarks/$name/prepare.py
          prepare_args: {split: train}
          prompt_config: benchmarks/$name/prompts/default.yaml
          # Name the license of the questions before you share them.
          license: TBD
""")


class Kind(NamedTuple):
    """The parts of an evaluation's folder that depend on the grader."""

    server: str
    metric: str
    graded: str
    prompt: str
    labels: str


_ACCURACY = "accuracy, the share of correct answers"
_YES_NO = "`yes` if the answer is correct, `no` if it is not. A correct answer in another form is `yes`."
_FINAL = "The answer after the last `Answer:` is compared with the expected one (see `resources_servers/answer_match`)"
KINDS: dict[Grader, Kind] = {
    "exact": Kind("answer_match", _ACCURACY, f"{_FINAL}, ignoring case, spacing and markup.", LINE, _YES_NO),
    "number": Kind("answer_match", _ACCURACY, f"{_FINAL} as a number.", LINE, _YES_NO),
    "choice": Kind(
        "answer_match",
        _ACCURACY,
        f"{_FINAL}; it must be one of the options.",
        f"\n\n  Choose one of these:\n  {{choices}}{LINE}",
        _YES_NO,
    ),
    "regex": Kind("answer_match", _ACCURACY, f"{_FINAL}, a regex that must match all of it.", LINE, _YES_NO),
    "contains": Kind(
        "answer_match",
        _ACCURACY,
        "The reply must contain the expected words (see `resources_servers/answer_match`). A reply that mentions them "
        "among others is correct, too.",
        "",
        _YES_NO,
    ),
    "judge": Kind(
        "equivalence_llm_judge",
        _ACCURACY,
        "A judge model compares the whole reply with the expected answer, by `prompts/judge.md`. If the judge fails, "
        "so does the rollout; it never counts as wrong.",
        "",
        _YES_NO,
    ),
    "rubric": Kind(
        "rubric_judge",
        "the weighted share of the criteria in `rubric.md` that an answer meets",
        "A judge model decides each criterion of `rubric.md` separately. If the judge fails, so does the rollout.",
        "",
        "One column per criterion: `yes` if the answer meets it, `no` if it does not or only in part.",
    ),
}


@dataclass(frozen=True)
class OwnEvaluation:
    """The benchmark to create: its name, the table of questions with its columns, and the grader."""

    name: str
    source: Path
    grader: Grader
    columns: Columns
    rubric: Path | None = None
    system: str | None = None
    """A system prompt for all questions, or the column with one for each question."""
    train_share: float = 0.0
    """The share of the questions that are for training instead of the benchmark."""


class Created(NamedTuple):
    """The result of creating an evaluation: its folder, remarks on the questions, and the next commands to run."""

    folder: Path
    notes: list[str]
    next_steps: str


def create(wanted: OwnEvaluation, root: Path) -> Created:
    """Create `<root>/benchmarks/<name>`. Raise `UserError` if a setting or row is invalid, and create nothing."""
    _check(wanted, root)
    wanted = _with_system(wanted)
    questions = questions_of(wanted.source, wanted.columns, wanted.grader)
    divided(wanted.source, questions.rows, wanted.train_share)
    folder = root / BENCHMARKS / wanted.name
    partial = folder.with_name(f".{wanted.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write(wanted, partial, len(questions.rows))
        partial.rename(folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}). Choose another working folder.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Created(folder, questions.notes, _next_steps(wanted, len(questions.rows)))


def _check(wanted: OwnEvaluation, root: Path) -> None:
    if problem := problem_of_name(wanted.name):
        raise UsageError(f"name: '{wanted.name}' cannot be the name of a benchmark: {problem}. Choose another name.")
    relative = Path(BENCHMARKS, wanted.name)
    if (root / relative).exists():
        raise DataError(f"{root / relative} already exists. Choose another name, or remove it first.")
    if there := paths.find(relative):
        raise DataError(f"a benchmark '{wanted.name}' already exists ({there}). Choose another name.")
    if (wanted.grader == "rubric") != (wanted.rubric is not None):
        raise UsageError(
            "rubric: the grader 'rubric' needs a file with the criteria. Name it with --rubric."
            if wanted.rubric is None
            else f"rubric: the grader '{wanted.grader}' does not use a rubric. Choose --grader rubric, or leave out "
            "--rubric."
        )
    if wanted.rubric is not None:
        read_rubric(wanted.rubric)
    if wanted.columns.options and wanted.grader != "choice":
        raise UsageError(
            f"options: the grader '{wanted.grader}' does not use options. Choose --grader choice, or leave out "
            "--options."
        )
    if wanted.columns.answer_is != "text" and not wanted.columns.options:
        raise UsageError(
            f"answer_is: answers as {wanted.columns.answer_is} need options. Choose --grader choice and name the "
            "column with the options (--options)."
        )


def _with_system(wanted: OwnEvaluation) -> OwnEvaluation:
    """Return the evaluation with the column of system prompts among its columns, if `system` names one.

    Raise `DataError` for a single word that is not a column, because it is a misspelled name rather than a prompt.
    """
    if wanted.system is None:
        return wanted
    if not wanted.system.strip():
        raise UsageError("system: the system prompt is empty. Write it, name a column, or leave out --system.")
    try:
        column = read_sheet(wanted.source).column(wanted.system)
    except MissingColumn as error:
        if len(wanted.system.split()) > 1:
            return wanted
        raise DataError(f"{error} A system prompt has more than one word.") from error
    return replace(wanted, columns=replace(wanted.columns, system=column), system=None)


def _system_of(wanted: OwnEvaluation) -> str:
    """Return the system prompt as YAML lines for the prompt's file."""
    if wanted.columns.system:
        return 'system: "{system}"\n'
    if wanted.system is None:
        return ""
    text = wanted.system.strip().replace("{", "{{").replace("}", "}}")
    return "".join(f"{line}\n" for line in ("system: |-", *(f"  {line}" for line in text.splitlines())))


def _write(wanted: OwnEvaluation, folder: Path, count: int) -> None:
    name, kind = wanted.name, KINDS[wanted.grader]
    needs_judge = wanted.grader not in COMPARED
    source = f"questions{wanted.source.suffix.lower()}"
    values = {
        "name": name,
        "count": str(count),
        "source": source,
        "grader": wanted.grader,
        "server": kind.server,
        "metric": kind.metric,
        "graded": kind.graded,
        "labels": kind.labels,
        "settings": _settings(wanted, "policy_model"),
        "judge": _settings(wanted, "judge_model"),
        "columns": "\n".join(
            f"        {key}={json.dumps(value, ensure_ascii=False)},"
            for key, value in vars(wanted.columns).items()
            if value and (key, value) != ("answer_is", "text")
        ),
        "train_share": f"        train_share={wanted.train_share!r},\n" if wanted.train_share else "",
        "output": 'output: Path | None = None, split: str = "benchmark"' if wanted.train_share else "",
        "written": "rows =" if wanted.train_share else "return",
        "returned": "    return output or rows\n" if wanted.train_share else "",
        "train": TRAIN_DATASET.substitute(name=name) if wanted.train_share else "",
        "files": _files(wanted),
        "flavor": f"{name}/judge" if needs_judge else name,
        "judge_commands": _judge_commands(wanted),
    }
    for file in (*FILES, *(["judge.yaml"] if needs_judge else [])):
        text = Template((TEMPLATE / file).read_text("utf-8")).substitute(values).rstrip() + "\n"
        _put(folder / file.removesuffix(".txt"), text)
    image = 'image: "{image}"\n' if wanted.columns.image else ""
    _put(folder / "prompts" / "default.yaml", f"{_system_of(wanted)}{image}user: |-\n  {{question}}{kind.prompt}\n")
    _put(
        folder / "data" / ".gitignore",
        "# Made from the questions by prepare.py.\n*\n!.gitignore\n!example.jsonl\n!images/\n!images/**\n",
    )
    shutil.copyfile(wanted.source, folder / source)
    if wanted.grader == "judge":
        judge = paths.find("resources_servers/equivalence_llm_judge/prompts/judge.md", Path.is_file)
        assert judge is not None
        _put(folder / "prompts" / "judge.md", judge.read_text("utf-8"))
    if wanted.rubric is not None:
        found = paths.find(wanted.rubric, Path.is_file)
        assert found is not None
        shutil.copyfile(found, folder / RUBRIC)
    output = folder / "data" / f"{name}.jsonl"
    copy_images(wanted.source, wanted.columns, output.parent / IMAGES)
    script = folder / "prepare.py"
    write_questions(
        folder / source,
        output,
        grader=wanted.grader,
        train_share=wanted.train_share,
        script=script,
        **vars(wanted.columns),
    )


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _settings(wanted: OwnEvaluation, judge: str) -> str:
    """Return the grader's settings as YAML lines for the server's block.

    They are for `config.yaml` if `judge` is the policy model, and for `judge.yaml` otherwise.
    """
    is_own = judge != "policy_model"
    folder = f"benchmarks/{wanted.name}"
    reference = f"{{type: responses_api_models, name: {judge}}}"
    if wanted.grader == "judge":
        lines = [f"judge_model_server: {reference}"]
        lines += [] if is_own else [f"judge_prompt_template_fpath: {folder}/prompts/judge.md"]
    elif wanted.grader == "rubric":
        lines = ["judge:", f"  model_server: {reference}"]
        if not is_own:
            lines.insert(0, f"rubric: {folder}/{RUBRIC}")
            lines += ["  prompt: prompts/judge.md", '  labels: ["[[met]]", "[[not met]]"]']
    else:
        lines = []
    return "".join(f"      {line}\n" for line in lines)


def _files(wanted: OwnEvaluation) -> str:
    lines = []
    if wanted.grader == "judge":
        lines.append("| `prompts/judge.md` | the prompt of the judge |")
    if wanted.grader == "rubric":
        lines.append("| `rubric.md` | the criteria and their weights |")
    if wanted.grader not in COMPARED:
        flavor = f"--benchmark {wanted.name}/judge"
        lines.append(
            f"| `judge.yaml` | with a separate judge model (`{flavor}`); without it, the model judges itself |"
        )
    return "".join(f"{line}\n" for line in lines)


def _judge_commands(wanted: OwnEvaluation) -> str:
    if wanted.grader in COMPARED:
        return ""
    name = wanted.name
    command = (
        f"    ng eval reverify --benchmark {name}/judge --judge-repeats 5 \\\n"
        f"        --inputs results/{name}_materialized_inputs.jsonl --rollouts results/{name}.jsonl \\\n"
        f"        --output results/{name}_again.jsonl --labels labels.csv\n"
    )
    return f"\nA judge may also disagree with itself. This command grades every answer five times:\n\n{command}"


def _next_steps(wanted: OwnEvaluation, count: int) -> str:
    name = wanted.name
    judge = "" if wanted.grader in COMPARED else "/judge"
    return (
        f"benchmarks/{name}: {counted(count, 'question')}, graded by '{wanted.grader}'. Next:\n"
        f"  ng eval run --benchmark {name}{judge} --model-type openai_model --output results/{name}.jsonl\n"
        f"  ng eval label results/{name}.jsonl --sample 50 --output labels.csv"
    )
