"""Make rows: errands in our own company, or the queries of WorkBench.

python resources_servers/workplace_assistant/prepare.py --count 500 --output <rows.jsonl>
python resources_servers/workplace_assistant/prepare.py --input <…_queries_and_answers.csv> --output <rows.jsonl>
"""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nemo_gym import DataError, convert_each, run_prepare
from nemo_gym.jsonl import write_rows
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.errands import Call, Errand, errands
from resources_servers.workplace_assistant.toolkits import TOOLS

INSTRUCTIONS = Path(__file__).parent / "prompts" / "assistant.md"
MOST_ERRANDS = 10_000
"""Our company is too small for many more different errands."""


def prepare(
    output: Path, input: Sequence[Path] = (), *, count: int = 500, seed: int = 0, skip_bad: bool = False
) -> Path:
    """Write one row per query of WorkBench's files, or `count` errands in our own company, and return their path.

    input: a WorkBench file of queries and answers (CSV); repeat the flag for several
    count: number of errands in our own company

    WorkBench's queries need its tables in the server's `database_dir`. Raises `DataError` with file and line for a
    query without an answer; then nothing is written. `skip_bad` leaves out and reports such queries.
    """
    if not 0 < count <= MOST_ERRANDS:
        raise DataError(f"count: {count} is not between 1 and {MOST_ERRANDS}.")
    made = islice(errands(made_up_company(), seed), count)
    asked = convert_each(_queries(input), lambda query: _errand(*query), skip_bad=skip_bad) if input else made
    write_rows(output, _rows(asked, "workbench" if input else "workplace_assistant"))
    return output


def _rows(asked: Iterable[Errand], environment_name: str) -> Iterator[dict[str, Any]]:
    instructions = INSTRUCTIONS.read_text("utf-8").strip()
    for number, errand in enumerate(asked):
        yield {
            "id": number,
            "responses_create_params": {
                "input": [
                    {"role": "system", "content": instructions},
                    {"role": "user", "content": errand.request},
                ]
            },
            "ground_truth": [
                {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
                for call in errand.calls
            ],
            "category": errand.category,
            "environment_name": environment_name,
        }


def _queries(paths: Iterable[Path]) -> Iterator[tuple[dict[str, str | None], str]]:
    """Yield the queries of some files, with the lines on which they end."""
    for path in paths:
        try:
            file = path.open(encoding="utf-8", newline="")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
        with file:
            lines = csv.DictReader(file)
            for row in lines:
                yield row, f"{path}:{lines.line_num}"


def _errand(row: dict[str, str | None], where: str) -> Errand:
    missing = [column for column in ("query", "answer", "domains") if not row.get(column)]
    if missing:
        raise DataError(f"{where}: {', '.join(missing)} missing. A query has a query, its answer and its domains.")
    domains = _strings(row["domains"] or "", f"{where}: domains")
    return Errand(
        category=domains[0] if len(domains) == 1 else "multi_domain",
        # The files escape line breaks in queries, but not in answers.
        request=(row["query"] or "").replace("\\n", "\n"),
        calls=[_call(text, f"{where}: answer") for text in _strings(row["answer"] or "", f"{where}: answer")],
    )


def _strings(text: str, where: str) -> list[str]:
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(f"{where}: {text[:80]!r} is not a list of texts as Python writes it.") from error
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: {text[:80]!r} is not a list of texts as Python writes it.")
    return values


def _call(text: str, where: str) -> Call:
    """Parse a call such as `email.delete_email.func(email_id="…")`."""
    problem = DataError(f'{where}: {text[:80]!r} is not a call such as email.delete_email.func(email_id="00000001").')
    try:
        call = ast.parse(text, mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise problem from error
    if (
        not isinstance(call, ast.Call)
        or call.args
        or not all(keyword.arg and isinstance(keyword.value, ast.Constant) for keyword in call.keywords)
    ):
        raise problem
    name = ast.unparse(call.func).removesuffix(".func").replace(".", "_")
    if name not in TOOLS:
        raise DataError(f"{where}: {name!r} is not a tool. The tools are {', '.join(TOOLS)}.")
    return Call(name, {str(each.arg): str(each.value.value) for each in call.keywords})  # type: ignore[attr-defined]


if __name__ == "__main__":
    run_prepare(prepare)
