"""Generate rows with booking requests that lack one detail, each with a simulated user who knows it.

python resources_servers/proactive_asking/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

from nemo_gym import DataError, Split, run_prepare, shared_rows, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.proactive_asking.domains import DOMAINS, TODAY, Domain, in_words

INSTRUCTIONS = Path(__file__).parent / "prompts" / "assistant.md"
NOTHING_MORE = "I don't mind. Just go ahead, please."
PERSONA = "{name}, {age}, {job} in {city}, interested in {interests}, who {manner}"
PERSONAS = tuple(
    PERSONA.format_map({**row, "interests": " and ".join(row["interests"])}) for row in shared_rows("personas.jsonl")
)


def prepare(
    output: Path,
    count: int = 500,
    seed: int = 0,
    *,
    complete_share: float = 0.0,
    domain: Sequence[str] = (),
    split: Split | None = None,
) -> Path:
    """Write `count` rows, alternating between the domains, and return their path.

    complete_share: share of rows (0 to 1) with complete requests, for which asking does not help
    domain: use only this domain; repeat the flag for several

    Raises `DataError` for an invalid share or domain; then nothing is written.
    """
    if not 0 <= complete_share <= 1:
        raise DataError(f"complete_share: {complete_share} is not between 0 and 1.")
    unknown = [name for name in domain if name not in DOMAINS]
    if unknown:
        raise DataError(f"domain: '{unknown[0]}' does not exist. The domains are: {', '.join(DOMAINS)}.")
    drawn = _rows(domain or list(DOMAINS), random.Random(f"proactive asking {seed}"), complete_share)
    rows = split_rows(drawn, split, count, key=itemgetter("responses_create_params"))
    write_rows(output, ({"id": number, **row} for number, row in enumerate(rows)))
    return output


def _rows(domains: Sequence[str], rng: random.Random, complete_share: float) -> Iterator[dict[str, Any]]:
    system = INSTRUCTIONS.read_text("utf-8").strip().format(today=f"{TODAY:%A}, {TODAY.day} {TODAY:%B %Y}")
    for name in cycle(domains):
        yield _row(name, system, rng, is_complete=rng.random() < complete_share)


def _row(name: str, system: str, rng: random.Random, *, is_complete: bool) -> dict[str, Any]:
    domain = DOMAINS[name]
    values = domain.draw(rng)
    missing = None if is_complete else rng.choice(list(domain.details))
    request = _request(domain, values, missing, rng)
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": system}, {"role": "user", "content": request}]
        },
        "user": {
            "persona": rng.choice(PERSONAS),
            "goal": request,
            "facts": {key.replace("_", " "): in_words(values)[key] for key in domain.details},
            "answers": [
                {"asked": list(detail.asked_with), "says": detail.says.format_map(in_words(values))}
                for detail in domain.details.values()
            ],
            "otherwise": NOTHING_MORE,
        },
        "missing_detail": missing and {"name": missing, "asked_with": list(domain.details[missing].asked_with)},
        "expected_booking": {"tool": domain.tool, "arguments": values},
        "domain": name,
    }


def _request(domain: Domain, values: dict[str, Any], missing: str | None, rng: random.Random) -> str:
    known = in_words(values)
    more = "".join(detail.clause.format_map(known) for key, detail in domain.details.items() if key != missing)
    return rng.choice(domain.requests).format_map({**known, "more": more})


if __name__ == "__main__":
    run_prepare(prepare)
