"""HumanEval's problems, converted to tasks of this environment."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym import DataError, convert_each

INSTRUCTION = (
    "Complete this Python function. Answer with the whole function, and the imports that it needs, "
    "in one fenced block of Python."
)


class HumanEvalProblem(BaseModel):
    """A HumanEval problem: a signature with its docstring, a body, and a check."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


def rows_of_humaneval(path: Path, *, skip_bad: bool = False) -> Iterator[dict[str, Any]]:
    """Yield one row per problem of a HumanEval file (JSON Lines, plain or gzipped).

    Raises `DataError` with file and line if a line is not a HumanEval problem. With `skip_bad`, such lines are
    reported and left out instead.
    """
    lines = ((number, line) for number, line in enumerate(_lines(path), start=1) if line.strip())
    return convert_each(lines, lambda each: _row(_problem(each[1], f"{path}:{each[0]}")), skip_bad=skip_bad)


def _problem(line: bytes, where: str) -> HumanEvalProblem:
    try:
        return HumanEvalProblem.model_validate(json.loads(line))
    except ValidationError as error:
        wrong = error.errors()[0]
        field = ".".join(str(part) for part in wrong["loc"])
        raise DataError(f"{where}: {field}: {wrong['msg']}. Only HumanEval's problems can be converted.") from error
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({error}). Each line must hold one problem.") from error


def _lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}). Check the path.") from error


def _row(problem: HumanEvalProblem) -> dict[str, Any]:
    question = f"{INSTRUCTION}\n\n```python\n{problem.prompt.strip()}\n```"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "verifier_metadata": {
            "unit_tests": {
                "inputs": [],
                "outputs": [],
                "fn_name": problem.entry_point,
                "check": problem.test,
                "preamble": problem.prompt,
            },
            "reference": f"{problem.prompt}{problem.canonical_solution}",
        },
        "hash_id": hashlib.sha256(f"{problem.prompt}{problem.test}".encode()).hexdigest()[:16],
        "dataset": "humaneval",
        "source": problem.task_id,
    }
