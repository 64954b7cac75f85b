"""Convert the queries in WorkBench's CSV files to errands."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from nemo_gym import DataError
from resources_servers.workplace_assistant.errands import Call, Errand
from resources_servers.workplace_assistant.toolkits import TOOLS

MULTI_DOMAIN = "multi_domain"


class Query(NamedTuple):
    """A query and its location in a file."""

    fields: dict[str, str | None]
    where: str
    """The file, and the line on which the query ends."""


def read_queries(paths: Iterable[Path]) -> Iterator[Query]:
    for path in paths:
        try:
            file = path.open(encoding="utf-8-sig", newline="")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}). Check the path.") from error
        with file:
            lines = csv.DictReader(file)
            try:
                for fields in lines:
                    yield Query(fields, f"{path}:{lines.line_num}")
            except (csv.Error, UnicodeDecodeError) as error:
                raise DataError(f"{path}:{lines.line_num + 1}: not a line of a CSV file ({error}).") from error


def errand_of(query: Query) -> Errand:
    """Convert a query to an errand. Raises `DataError` with file and line if its answer is missing or invalid."""
    fields, where = query.fields, query.where
    # Later versions of the files name the columns "task" and "outcome".
    for name, newer in (("query", ("task",)), ("answer", ("outcome", "outcomes"))):
        fields = {name: next((fields[each] for each in (name, *newer) if fields.get(each)), None), **fields}
    missing = [column for column in ("query", "answer", "domains") if not fields.get(column)]
    if missing:
        raise DataError(f"{where}: missing {', '.join(missing)}. A line needs the query, its answer and its domains.")
    domains = _strings(fields["domains"] or "", f"{where}: domains")
    return Errand(
        category=domains[0] if len(domains) == 1 else MULTI_DOMAIN,
        # Unescape line breaks only here, because the files escape them in queries but not in answers.
        request=(fields["query"] or "").replace("\\n", "\n"),
        calls=[_call(text, f"{where}: answer") for text in _strings(fields["answer"] or "", f"{where}: answer")],
    )


def _strings(text: str, where: str) -> list[str]:
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(
            f"{where}: {text[:80]!r} is not a list of strings in Python syntax, such as ['a', 'b']."
        ) from error
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: {text[:80]!r} is not a list of strings in Python syntax, such as ['a', 'b'].")
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
