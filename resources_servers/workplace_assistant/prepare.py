"""Generate rows with errands in the environment's own company, or with the queries of WorkBench.

python resources_servers/workplace_assistant/prepare.py --count 500 --output <rows.jsonl>
python resources_servers/workplace_assistant/prepare.py --input <…_queries_and_answers.csv> --output <rows.jsonl>
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from nemo_gym import DataError, Split, convert_each, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.workplace_assistant.company import made_up_company
from resources_servers.workplace_assistant.errands import Errand, errands
from resources_servers.workplace_assistant.workbench import errand_of, read_queries

INSTRUCTIONS = Path(__file__).parent / "prompts" / "assistant.md"
MOST_ERRANDS, MOST_FOR_VALIDATION = 10_000, 900
"""Maximum number of errands per split. The generated company is too small for many more different errands."""


def prepare(
    output: Path,
    input: Sequence[Path] = (),
    *,
    count: int = 500,
    seed: int = 0,
    skip_bad: bool = False,
    split: Split | None = None,
) -> Path:
    """Write one row per query of WorkBench's files, or `count` rows with errands, and return their path.

    input: a WorkBench file of queries and answers (CSV); repeat the flag for several
    count: number of errands in the environment's own company
    split: only errands of this split, in the environment's own company

    WorkBench's queries need its tables in the server's `database_dir`. Raises `DataError` with file and line for a
    query without an answer; then nothing is written. `skip_bad` leaves out and reports such queries.
    """
    most = MOST_FOR_VALIDATION if split == "validation" else MOST_ERRANDS
    if not 0 < count <= most:
        raise DataError(f"count: {count} is not between 1 and {most}.")
    if input and split is not None:
        raise DataError(
            f"split: '{split}' applies only to errands in the environment's own company. Remove split or input."
        )
    drawn = errands(made_up_company(), seed)
    made = split_rows(drawn if split else _distinct(drawn), split, count, key=attrgetter("request"))
    asked = convert_each(read_queries(input), errand_of, skip_bad=skip_bad) if input else made
    write_rows(output, _rows(asked, "workbench" if input else "workplace_assistant"))
    return output


def calls_of(errand: Errand) -> list[dict[str, str]]:
    """Return an errand's calls in the format of a row's `ground_truth`."""
    return [{"name": name, "arguments": json.dumps(given, ensure_ascii=False)} for name, given in errand.calls]


def _distinct(drawn: Iterable[Errand]) -> Iterator[Errand]:
    asked = set[str]()
    for errand in drawn:
        if errand.request not in asked:
            asked.add(errand.request)
            yield errand


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
            "ground_truth": calls_of(errand),
            "category": errand.category,
            "environment_name": environment_name,
        }


if __name__ == "__main__":
    run_prepare(prepare)
