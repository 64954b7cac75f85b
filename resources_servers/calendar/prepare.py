"""Make rows: conversations of personas with their assistant, each with the calendar that it must lead to.

python resources_servers/calendar/prepare.py --count 100 --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path
from typing import Any

from nemo_gym import DataError, exit_code_of
from nemo_gym.jsonl import write_rows
from resources_servers.calendar.conversation import Conversation, DayIsFull
from resources_servers.calendar.personas import PERSONAS_FILE, Agenda, Cast, Persona, read_cast

DRAWS = 50
"""So many days are drawn for one persona and agenda before the agenda is taken to be too full for any."""


def prepare(output: Path, count: int = 100, seed: int = 0, personas: Path = PERSONAS_FILE) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows.

    Raises `DataError` with the file and the key where the personas cannot be used; then nothing is written.
    """
    write_rows(output, _rows(read_cast(personas), count, seed, personas))
    return output


def _rows(cast: Cast, count: int, seed: int, source: Path) -> Iterator[dict[str, Any]]:
    pairs = [(persona, agenda) for agenda in cast.agendas for persona in cast.personas]
    random.Random(f"calendar {seed}").shuffle(pairs)
    for number in range(count):
        persona, agenda = pairs[number % len(pairs)]
        yield _row(persona, agenda, f"calendar {seed} {number}", source)


def _row(persona: Persona, agenda: Agenda, seed: str, source: Path) -> dict[str, Any]:
    for draw in numbers():
        try:
            return Conversation(persona, agenda, random.Random(f"{seed} {draw}")).play()
        except DayIsFull as full:
            if draw == DRAWS:
                raise DataError(
                    f"{source}: the agenda '{agenda.name}' wants more than fits between {agenda.min_time} and "
                    f"{agenda.max_time}. Give it a longer day, or fewer events."
                ) from full
        except ValueError as error:
            raise DataError(f"{source}: the agenda '{agenda.name}': {error}") from error
    raise AssertionError("unreachable")


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the calendar environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    parser.add_argument("--personas", type=Path, default=PERSONAS_FILE, help="personas and agendas (JSON)")
    asked = parser.parse_args(arguments)
    return exit_code_of(prepare, asked.output, asked.count, asked.seed, asked.personas)


if __name__ == "__main__":
    sys.exit(main())
