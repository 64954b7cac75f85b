"""Make rows: requests for a booking, each without one detail, and the user who knows it.

python resources_servers/proactive_asking/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_gym import DataError, exit_code_of
from nemo_gym.jsonl import write_rows
from resources_servers.proactive_asking.domains import DOMAINS, TODAY, Domain, told

INSTRUCTIONS = Path(__file__).parent / "prompts" / "assistant.md"
NOTHING_MORE = "I don't mind. Just go ahead, please."


def prepare(
    output: Path, count: int = 500, seed: int = 0, *, complete_share: float = 0.0, domains: Sequence[str] = ()
) -> Path:
    """Write `count` rows, the domains in turn, and answer where they are; the same seed makes the same rows.

    Of `complete_share` of them (0 to 1) nothing is missing: asking does not help there. Raises `DataError` for a share
    or a domain that there is not; then nothing is written.
    """
    if not 0 <= complete_share <= 1:
        raise DataError(f"complete_share: {complete_share} is not between 0 and 1.")
    unknown = [name for name in domains if name not in DOMAINS]
    if unknown:
        raise DataError(f"domains: there is no '{unknown[0]}'. The domains are: {', '.join(DOMAINS)}.")
    names = list(domains) or list(DOMAINS)
    rng = random.Random(f"proactive asking {seed}")
    system = INSTRUCTIONS.read_text("utf-8").strip().format(today=f"{TODAY:%A}, {TODAY.day} {TODAY:%B %Y}")
    write_rows(
        output,
        (
            {"id": number, **_row(names[number % len(names)], system, rng, is_complete=rng.random() < complete_share)}
            for number in range(count)
        ),
    )
    return output


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
            "persona": rng.choice(domain.personas),
            "goal": request,
            "facts": {key.replace("_", " "): told(values)[key] for key in domain.details},
            "answers": [
                {"asked": list(detail.asked_with), "says": detail.says.format_map(told(values))}
                for detail in domain.details.values()
            ],
            "otherwise": NOTHING_MORE,
        },
        "missing_detail": missing and {"name": missing, "asked_with": list(domain.details[missing].asked_with)},
        "expected_booking": {"tool": domain.tool, "arguments": values},
        "domain": name,
    }


def _request(domain: Domain, values: dict[str, Any], missing: str | None, rng: random.Random) -> str:
    known = told(values)
    more = "".join(detail.clause.format_map(known) for key, detail in domain.details.items() if key != missing)
    return rng.choice(domain.requests).format_map({**known, "more": more})


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the proactive_asking environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=500, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    parser.add_argument(
        "--complete-share", type=float, default=0.0, help="how many lack nothing, 0 to 1 (default: %(default)s)"
    )
    parser.add_argument("--domain", action="append", default=[], help=f"one of {', '.join(DOMAINS)}; may be repeated")
    asked = parser.parse_args(arguments)
    return exit_code_of(
        lambda: prepare(
            asked.output, asked.count, asked.seed, complete_share=asked.complete_share, domains=asked.domain
        )
    )


if __name__ == "__main__":
    sys.exit(main())
