"""Make rows: questions of reasoning-gym's generators, of one, of several by weight, or of all.

python resources_servers/reasoning_gym/prepare.py --generator maze --count 100 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym import DataError, exit_code_of
from nemo_gym.jsonl import write_rows
from resources_servers.reasoning_gym.scoring import NOT_INSTALLED, is_installed

INSTRUCTION = (
    "Think it through step by step, then give the final answer, and nothing else, between <answer> and </answer>. If "
    "the question asks for a certain format, keep to it exactly."
)
GENERATE = "resources_servers.reasoning_gym.generate"
OURS = {"seed": "--seed", "size": "--count"}


class Generator(BaseModel):
    """One generator of a mixture, as reasoning-gym's own composites write it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    config: dict[str, Any] = Field(default_factory=dict)


class Mixture(BaseModel):
    """Generators, of which each question's is drawn by weight."""

    model_config = ConfigDict(extra="forbid")

    datasets: list[Generator] = Field(min_length=1)


def prepare(output: Path, generators: Sequence[Generator] = (), count: int = 100, seed: int = 0) -> Path:
    """Write so many rows, always the same ones for a seed, and answer where they are.

    Without generators, all take part whose scorers give full marks to right answers alone.
    Raises `DataError` for a generator that there is not, or that does not take its config; then nothing is written.
    """
    if count < 1:
        raise DataError(f"--count {count}: at least one row is needed.")
    _check(generators)
    if not is_installed():
        raise DataError(NOT_INSTALLED)
    order = {"generators": [each.model_dump() for each in generators], "count": count, "seed": seed}
    write_rows(output, map(_row, _entries(order)))
    return output


def read_mixture(given: str) -> list[Generator]:
    """A mixture: the path of a YAML or JSON file, or the YAML or JSON itself.

    That is a list of `{name, weight, config}`, or such a list under `datasets`. Raises `DataError` with the place.
    """
    is_text = given.lstrip()[:1] in ("{", "[")
    where = "--mixture" if is_text else given
    try:
        read = yaml.safe_load(given if is_text else Path(given).read_text("utf-8"))
        return Mixture.model_validate({"datasets": read} if isinstance(read, list) else read).datasets
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: is not text in UTF-8.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise DataError(f"{where}{line}: not valid YAML ({getattr(error, 'problem', None) or error}).") from error
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise DataError(f"{where}: {key}: {problem['msg']}. Expected are name, weight and config.") from error


def _check(generators: Sequence[Generator]) -> None:
    names = [each.name for each in generators]
    for each in generators:
        if names.count(each.name) > 1:
            raise DataError(f"{each.name}: stands twice among the generators. Give it one weight and one config.")
        for key, option in OURS.items():
            if key in each.config:
                raise DataError(f"{each.name}: config.{key}: is set by {option}, for all generators.")
        try:
            json.dumps(each.config, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"{each.name}: config: a row cannot keep it ({error}). Write plain values.") from error


def _entries(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the other process makes; see `generate.py`."""
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
                told = json.loads(line)
                if "problem" in told:
                    raise DataError(told["problem"])
                yield told["entry"]
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise DataError(f"reasoning-gym ended without an answer: {last or 'it said nothing'}.")


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    question = entry["question"]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"{question.strip()}\n\n{INSTRUCTION}"}]},
        "question": question,
        "answer": entry["answer"],
        "metadata": entry["metadata"],
    }


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the reasoning_gym environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    chosen = parser.add_mutually_exclusive_group()
    names = "its name; repeat it for several (default: all but five)"
    chosen.add_argument("--generator", action="append", default=[], help=names)
    chosen.add_argument("--mixture", help="YAML or JSON, or a file of it: [{name, weight, config}, …]")
    parser.add_argument("--count", type=int, default=100, help="how many rows (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    asked = parser.parse_args(arguments)

    def write() -> None:
        named = [Generator(name=name) for name in asked.generator]
        prepare(asked.output, read_mixture(asked.mixture) if asked.mixture else named, asked.count, asked.seed)

    return exit_code_of(write)


if __name__ == "__main__":
    sys.exit(main())
