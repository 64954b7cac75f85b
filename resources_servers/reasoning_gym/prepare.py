"""Generate rows with questions from one, several or all of reasoning-gym's generators.

python resources_servers/reasoning_gym/prepare.py --generator maze --count 100 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import abc
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import DataError, Split, UsageError, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.reasoning_gym.scoring import NOT_INSTALLED, is_installed

INSTRUCTION = (
    "Think it through step by step, then give the final answer, and nothing else, between <answer> and </answer>. If "
    "the question asks for a certain format, keep to it exactly."
)
GENERATE = "resources_servers.reasoning_gym.generate"
OURS = {"seed": "--seed", "size": "--count"}
DRAWN_PER_ROW: dict[Split | None, int] = {None: 1, "train": 2, "validation": 20}
"""The number of questions to draw per row of a split. Only one in eleven is for validation. Some are duplicates."""


class Generator(BaseModel):
    """One generator of a mixture, in the format of reasoning-gym's composites."""

    model_config = ConfigDict(extra="forbid")

    name: str
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    config: dict[str, Any] = Field(default_factory=dict)


class Mixture(BaseModel):
    """A list of generators. For each question, one of them is drawn by weight."""

    model_config = ConfigDict(extra="forbid")

    datasets: list[Generator] = Field(min_length=1)


def prepare(
    output: Path,
    generator: Sequence[str] = (),
    mixture: str | None = None,
    *,
    category: str | None = None,
    count: int = 100,
    seed: int = 0,
    split: Split | None = None,
) -> Path:
    """Write `count` rows and return their path.

    generator: a generator's name; repeat the flag for several (default: all except the five
        that reward wrong answers)
    mixture: YAML or JSON, or the path of such a file: [{name, weight, config}, …]
    category: all generators of a category, such as logic, except the five that reward wrong answers

    Raises `DataError` if a generator or category is unknown, or if a generator rejects its config; then nothing is
    written.
    """
    if generator and mixture:
        raise UsageError("argument --mixture: not allowed with argument --generator")
    if category and (generator or mixture):
        raise UsageError(f"argument --category: not allowed with argument --{'mixture' if mixture else 'generator'}")
    generators = read_mixture(mixture) if mixture else [Generator(name=name) for name in generator]
    _check(generators)
    if not is_installed():
        raise DataError(NOT_INSTALLED)
    chosen = {"generators": [each.model_dump() for each in generators], "category": category}
    order = {**chosen, "count": DRAWN_PER_ROW[split] * count, "seed": seed}
    # Close the iterator to end its process, because the process would make more questions than needed.
    with contextlib.closing(_entries(order)) as entries:
        write_rows(output, split_rows(map(_row, entries), split, count, key=itemgetter("question")))
    return output


def read_mixture(given: str) -> list[Generator]:
    """Parse a mixture from YAML or JSON text, or from the path of such a file.

    A mixture is a list of `{name, weight, config}`, or an object with such a list under `datasets`. Raises
    `DataError` with the location of an error.
    """
    is_text = given.lstrip()[:1] in ("{", "[")
    where = "--mixture" if is_text else given
    try:
        read = yaml.safe_load(given if is_text else Path(given).read_text("utf-8"))
        return Mixture.model_validate({"datasets": read} if isinstance(read, list) else read).datasets
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text. Save it as UTF-8.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise DataError(f"{where}{line}: not valid YAML ({getattr(error, 'problem', None) or error}).") from error
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise DataError(f"{where}: {key}: {problem['msg']}. The keys are name, weight and config.") from error


def _check(generators: Sequence[Generator]) -> None:
    names = [each.name for each in generators]
    for each in generators:
        if names.count(each.name) > 1:
            raise DataError(f"{each.name}: listed twice among the generators. Give it one weight and one config.")
        for key, option in OURS.items():
            if key in each.config:
                raise DataError(f"{each.name}: config.{key}: use {option} instead, which applies to all generators.")
        try:
            json.dumps(each.config, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"{each.name}: config: not JSON ({error}). Use only JSON values.") from error


def _entries(order: dict[str, Any]) -> abc.Generator[dict[str, Any], None, None]:
    """Yield the entries that `generate.py` makes in another process."""
    search_path = os.pathsep.join(place for place in sys.path if place)
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "-P", "-m", GENERATE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": search_path},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order).encode())
                process.stdin.close()
            for line in process.stdout:
                message = json.loads(line)
                if "problem" in message:
                    raise DataError(message["problem"])
                yield message["entry"]
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise DataError(f"The reasoning-gym process failed: {last or 'it printed no reason'}.")


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    question = entry["question"]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{question.strip()}\n\n{INSTRUCTION}"}]},
        "question": question,
        "answer": entry["answer"],
        "metadata": entry["metadata"],
    }


if __name__ == "__main__":
    run_prepare(prepare)
