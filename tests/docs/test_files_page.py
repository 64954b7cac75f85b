"""The reference of files and fields names all that a run writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemo_gym.rollouts.job import RunFiles
from nemo_gym.schemas import row as fields_of_rows
from nemo_gym.schemas.row import PRIVATE_PREFIX
from tests.conftest import Workplace

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "files.md"
TASKS = Path(__file__).parents[2] / "resources_servers" / "answer_match" / "data" / "example.jsonl"
OF_THE_ENVIRONMENT = {"responses_create_params", "question", "expected_answer", "grader", "extracted_answer"}
CONFIG = """\
knowledge:
  resources_servers:
    answer_match: {entrypoint: app.py}
knowledge_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: knowledge}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: tasks.jsonl}
"""


def names_in(column: int) -> set[str]:
    """Return the code words in a column of the page's tables."""
    lines = re.findall(r"^\| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    cells = [line.split(" | ") for line in lines]
    return {name for cell in cells if len(cell) > column for name in re.findall(r"`([^`]+)`", cell[column])}


def fields_in(path: Path) -> Iterator[str]:
    """Yield the names of the fields in the lines of a file."""
    for line in path.read_text("utf-8").splitlines():
        yield from json.loads(line)


def test_every_file_of_a_run_is_listed() -> None:
    files = RunFiles(results=Path("results/x.jsonl"))
    named = [getattr(files, name) for name, value in vars(RunFiles).items() if isinstance(value, property)]
    own = [path for path in named if isinstance(path, Path)]
    written = {str(path.relative_to(Path("results").resolve() if path.is_absolute() else "results")) for path in own}
    listed = names_in(0)
    assert {name for name in written if not any(each.startswith(name) for each in listed)} == set()


def test_every_field_of_the_framework_is_listed() -> None:
    values = [value for value in vars(fields_of_rows).values() if isinstance(value, str)]
    known = {value for value in values if value.startswith(PRIVATE_PREFIX) and value != PRIVATE_PREFIX}
    text = PAGE.read_text("utf-8")
    assert {name for name in {*known, "ng_model_call_capture", "ng_trajectory"} if f"`{name}" not in text} == set()


@pytest.mark.slow
def test_a_run_writes_only_what_is_listed(workplace: Workplace) -> None:
    first, *others = map(json.loads, TASKS.read_text("utf-8").splitlines()[:2])
    invalid = {key: value for key, value in first.items() if key != "expected_answer"}
    workplace.write("tasks.jsonl", "".join(f"{json.dumps(row)}\n" for row in (first, *others, invalid)))
    workplace.write("knowledge.yaml", CONFIG)
    finished = workplace.run(
        "ng_e2e_collect_rollouts", "--config", "knowledge.yaml", "--model-type", "sample_model", "--split", "example",
        "--output", "results/x.jsonl", "+observability_enabled=true",
        f"+model_call_capture_dir={workplace.folder}/calls",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    results, listed = workplace.folder / "results", names_in(0)
    written = {path.name for path in results.iterdir() if path.is_file()}
    assert {"x.jsonl", "x_failures.jsonl", "x_run.json"} <= written <= listed
    found = {*fields_in(results / "x.jsonl"), *fields_in(results / "x_failures.jsonl")}
    assert found - listed == OF_THE_ENVIRONMENT
    assert {path.name for path in (workplace.folder / "calls").iterdir()} == {f"{n}-0.capture.jsonl" for n in range(3)}
