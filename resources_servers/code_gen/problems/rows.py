"""Rows of generated problems: a statement with two examples, hidden tests and a reference solution."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from resources_servers.code_gen.problems import arithmetic, grids, lists, machines, sequences, texts
from resources_servers.code_gen.problems.problem import Case, Family, Problem, cases_of

FAMILIES: dict[str, Family] = {
    name: family
    for module in (lists, texts, grids, machines, arithmetic, sequences)
    for name, family in module.FAMILIES.items()
}
SHOWN = 2
"""The number of tests that the statement shows as examples."""
AS_FUNCTION = "Answer with the whole function, and the imports that it needs, in one fenced block of Python."
AS_PROGRAM = (
    "Answer with one program in a fenced block of Python. It reads from standard input and writes to standard output."
)


def generated_rows(seed: int) -> Iterator[dict[str, Any]]:
    """Yield an endless stream of rows of all problem families. The same seed gives the same rows."""
    chance = random.Random(f"code_gen {seed}")
    while True:
        for name, family in sorted(FAMILIES.items(), key=lambda _: chance.random()):
            problem = family(chance)
            if cases := cases_of(problem, chance):
                as_row = _function_row if chance.random() < 0.6 else _program_row
                yield as_row(f"generated/{name}", problem, cases)


def task_of(row: dict[str, Any]) -> str:
    """Return the reference function's code as the task's id. A function row and a program row may share a task."""
    reference: str = row["verifier_metadata"]["reference"]
    return reference.partition("\nlines = iter(")[0].strip()


def _function_row(source: str, problem: Problem, cases: Sequence[Case]) -> dict[str, Any]:
    takes = ", ".join(f"{name}: {kind.annotation}" for name, kind in problem.takes)
    examples = "\n".join(
        f">>> {problem.name}({', '.join(map(_as_python, case.arguments))})\n{_as_python(case.result)}"
        for case in cases[:SHOWN]
    )
    question = (
        f"Write a Python function `{problem.name}({takes}) -> "
        f"{problem.gives.annotation}`.\n\n{problem.statement}\n\n"
        f"Examples:\n\n```\n{examples}\n```\n\n{AS_FUNCTION}"
    )
    tests = {
        "fn_name": problem.name,
        "inputs": ["\n".join(case.arguments) for case in cases],
        "outputs": [case.result for case in cases],
    }
    return _row(source, question, tests, problem.code)


def _program_row(source: str, problem: Problem, cases: Sequence[Case]) -> dict[str, Any]:
    parts = "\n".join(f"- `{name}`: {kind.in_input}" for name, kind in problem.takes)
    inputs = [_as_input(problem, case) for case in cases]
    outputs = [_as_output(problem, case) for case in cases]
    examples = "\n\n".join(
        f"Input:\n\n```\n{given}```\n\nOutput:\n\n```\n{printed}```"
        for given, printed in zip(inputs[:SHOWN], outputs[:SHOWN], strict=True)
    )
    question = (
        f"Write a Python program.\n\n{problem.statement}\n\nThe input holds, in this order:\n\n{parts}\n\n"
        f"Instead of returning the result, print {problem.gives.in_output}.\n\n{examples}\n\n{AS_PROGRAM}"
    )
    return _row(source, question, {"inputs": inputs, "outputs": outputs}, _program(problem))


def _program(problem: Problem) -> str:
    reads = "".join(f"{name} = {kind.read}\n" for name, kind in problem.takes)
    call = f"{problem.name}({', '.join(name for name, _ in problem.takes)})"
    return (
        f'import sys\n\n\n{problem.code}\n\nlines = iter(sys.stdin.read().split("\\n"))\n'
        f"{reads}{problem.gives.show.format(call)}\n"
    )


def _as_input(problem: Problem, case: Case) -> str:
    values = map(json.loads, case.arguments)
    return "".join(f"{kind.to_text(value)}\n" for (_, kind), value in zip(problem.takes, values, strict=True))


def _as_output(problem: Problem, case: Case) -> str:
    return problem.gives.to_output(json.loads(case.result))


def _as_python(written: str) -> str:
    return repr(json.loads(written))


def _row(source: str, question: str, tests: dict[str, Any], reference: str) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "verifier_metadata": {"unit_tests": tests, "reference": reference},
        "hash_id": hashlib.sha256(question.encode()).hexdigest()[:16],
        "dataset": "generated",
        "source": source,
    }
