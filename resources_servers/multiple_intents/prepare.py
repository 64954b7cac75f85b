"""Generate rows with messages that contain several wishes about a generated company, and with the expected results.

python resources_servers/multiple_intents/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.multiple_intents.scenarios import SUBSETS, as_json, scenarios
from resources_servers.workplace_assistant.company import made_up_company

INSTRUCTIONS = Path(__file__).parent / "prompts" / "assistant.md"
ROWS_PER_COMPANY = 24
"""The number of rows per company. It is small, so that answers vary, and a multiple of the number of subsets."""
MOST_COMPANIES = 10**9
LAST_WORDS = "That is all, thank you."
"""The user's reply if the assistant asks a question after the last scripted message."""


def prepare(
    output: Path, count: int = 500, seed: int = 0, *, subset: Sequence[str] = (), split: Split | None = None
) -> Path:
    """Write `count` rows, alternating between the subsets, and return their path.

    subset: only rows of this subset; repeat the flag for several
    split: only rows of this split; the two splits have no company in common, so the answers of one do not help in
        the other

    Raises `DataError` for an unknown subset; then nothing is written.
    """
    unknown = [name for name in subset if name not in SUBSETS]
    if unknown:
        raise DataError(f"subset: '{unknown[0]}' does not exist. The subsets are: {', '.join(SUBSETS)}.")
    rows = _rows(_companies(seed, split, count), subset or list(SUBSETS))
    write_rows(output, ({"id": number, **row} for number, row in enumerate(islice(rows, max(count, 0)))))
    return output


def _companies(seed: int, split: Split | None, rows: int) -> Iterator[int]:
    """Yield the seeds of the companies that are needed for `rows` rows."""
    random = Random(seed)
    drawn = iter(lambda: random.randrange(MOST_COMPANIES), None)
    return split_rows(drawn, split, -(-rows // ROWS_PER_COMPANY))


def _rows(companies: Iterable[int], subsets: Sequence[str]) -> Iterator[JsonObject]:
    system = {"role": "system", "content": INSTRUCTIONS.read_text("utf-8").strip()}
    for company in companies:
        for subset, scenario in islice(scenarios(made_up_company(company), company, subsets), ROWS_PER_COMPANY):
            first, *later = scenario.messages
            yield {
                "responses_create_params": {"input": [system, {"role": "user", "content": first}]},
                "company": company,
                "user": {"script": later, "otherwise": LAST_WORDS},
                "wishes": scenario.wishes,
                "withdrawn_calls": as_json(scenario.withdrawn),
                "subset": subset,
            }


if __name__ == "__main__":
    run_prepare(prepare)
