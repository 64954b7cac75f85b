"""Run every command of docs/your_own_evaluation.md, in order, as a reader would."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path

import orjson
import pytest

from tests.conftest import Workplace

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "your_own_evaluation.md"
GATE = 3
"""The exit code of the one command that the page says to fail."""


def commands_of(page: Path) -> list[list[str]]:
    """Return the commands of a page: its indented lines, with continued lines joined."""
    text = re.sub(r" \\\n +", " ", page.read_text("utf-8"))
    return [shlex.split(line) for line in text.splitlines() if line.startswith("    ng ")]


def fill_in(path: Path) -> None:
    """Label a sheet as a person would: an answer that names the expected one is right."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        for column in row:
            if column.startswith("label"):
                is_right = row["expected_answer"] in row["answer"]
                # People do not agree with everything, and leave cells empty.
                row[column] = "" if number == 5 else "yes" if is_right or number % 7 == 0 else "No"
    # A spreadsheet program with decimal commas.
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def outputs(shared_workplace: Workplace) -> dict[str, str]:
    """The output of each command, by its words."""
    shutil.copytree(REPOSITORY / "examples" / "support_tickets", shared_workplace.folder / "examples/support_tickets")
    found: dict[str, str] = {}
    for program, *words in commands_of(PAGE):
        finished = shared_workplace.run(program, *words)
        assert finished.code == (GATE if "--gate" in words else 0), (words, finished)
        found[" ".join(words)] = finished.out
        if "--sample" in words:
            fill_in(shared_workplace.folder / words[words.index("--output") + 1])
    return found


def output_of(outputs: dict[str, str], start: str) -> str:
    return next(text for words, text in outputs.items() if words.startswith(start))


def test_page_shows_every_step(outputs: dict[str, str]) -> None:
    verbs = [words.split()[1] for words in outputs]
    assert verbs == [
        "init", "run", "run", "label", "label", "compare", "compare", "init", "run", "label", "label", "reverify",
    ]  # fmt: skip


def test_labels_are_compared_with_the_grader(outputs: dict[str, str]) -> None:
    text = output_of(outputs, "eval label --score labels.csv")
    assert "39 of 40 rollouts labelled, out of 192 in the run" in text
    assert re.search(r"agreement +\d+\.\d % \(95 % interval", text)
    assert re.search(r"Cohen's kappa +0\.\d\d \(95 % interval", text)


def test_comparison_shows_no_difference(outputs: dict[str, str]) -> None:
    assert "no difference between A and B is shown" in output_of(outputs, "eval compare")
    assert "undecided" in next(text for words, text in outputs.items() if "--gate" in words)


def test_each_criterion_is_calibrated(outputs: dict[str, str]) -> None:
    text = output_of(outputs, "eval label --score reply_labels.csv")
    assert re.findall(r"^(.+): grader \\ people$", text, re.MULTILINE) == ["solves", "promises nothing else", "tone"]


def test_variance_of_the_judge_is_reported(outputs: dict[str, str], shared_workplace: Workplace) -> None:
    text = output_of(outputs, "eval reverify")
    assert "48 rollouts graded 3 times each" in text
    # The judge draws each verdict, so it agrees with itself by chance only.
    kappa, unstable = re.search(r"tone: Fleiss' kappa (-?\d\.\d\d); unstable rollouts (\d+\.\d) %", text).groups()
    assert float(kappa) < 0.5
    assert float(unstable) > 25
    assert "The most frequent of 3 verdicts, compared with people:" in text
    report = orjson.loads((shared_workplace.folder / "results/replies_again_judge_variance.json").read_bytes())
    assert (report["repeats"], report["rollouts"], report["incomplete"]) == (3, 48, 0)
