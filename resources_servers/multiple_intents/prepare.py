"""Make rows: messages with several wishes about our own company, and the expected changes and answers.

python resources_servers/multiple_intents/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.jsonl import JsonObject, write_rows
from resources_servers.multiple_intents.scenarios import SUBSETS, Scenario, as_json, scenarios
from resources_servers.workplace_assistant.company import made_up_company

INSTRUCTIONS = Path(__file__).parent / "prompts" / "assistant.md"
LAST_WORDS = "That is all, thank you."
"""The user's reply to a question of the assistant after the last message."""


def prepare(
    output: Path, count: int = 500, seed: int = 0, *, subset: Sequence[str] = (), split: Split | None = None
) -> Path:
    """Write `count` rows, alternating between the subsets, and return their path.

    subset: only rows of this subset; repeat the flag for several
    split: only rows of this split; the two splits have no first message in common

    Raises `DataError` for an unknown subset; then nothing is written.
    """
    unknown = [name for name in subset if name not in SUBSETS]
    if unknown:
        raise DataError(f"subset: '{unknown[0]}' does not exist. The subsets are: {', '.join(SUBSETS)}.")
    drawn = scenarios(made_up_company(), seed, subset or list(SUBSETS))
    rows = split_rows(_rows(drawn), split, count, key=itemgetter("responses_create_params"))
    write_rows(output, ({"id": number, **row} for number, row in enumerate(rows)))
    return output


def _rows(drawn: Iterator[tuple[str, Scenario]]) -> Iterator[JsonObject]:
    system = {"role": "system", "content": INSTRUCTIONS.read_text("utf-8").strip()}
    for subset, scenario in drawn:
        first, *later = scenario.messages
        yield {
            "responses_create_params": {"input": [system, {"role": "user", "content": first}]},
            "user": {"script": later, "otherwise": LAST_WORDS},
            "wishes": scenario.wishes,
            "withdrawn_calls": as_json(scenario.withdrawn),
            "subset": subset,
        }


if __name__ == "__main__":
    run_prepare(prepare)
