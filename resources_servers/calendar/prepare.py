"""Make rows: conversations of personas with their assistant, each with the calendar that it must lead to.

python resources_servers/calendar/prepare.py --count 100 --output <rows.jsonl>
python resources_servers/calendar/prepare.py --live --count 100 --output <rows.jsonl>
python resources_servers/calendar/prepare.py --rollouts <results of live rows> --output <rows.jsonl>
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from itertools import count as numbers
from pathlib import Path
from typing import Any

from nemo_gym import DataError, exit_code_of
from nemo_gym.jsonl import write_rows
from resources_servers.calendar.collected import rows_of_rollouts
from resources_servers.calendar.conversation import Conversation, DayIsFull, PlayedDay
from resources_servers.calendar.personas import PERSONAS_FILE, Agenda, Cast, Persona, read_cast
from resources_servers.calendar.rows import live_row, told_row
from resources_servers.calendar.wording import UserModel, worded

DRAWS = 50
"""So many days are drawn for one persona and agenda before the agenda is taken to be too full for any."""


def prepare(
    output: Path,
    count: int = 100,
    seed: int = 0,
    personas: Path = PERSONAS_FILE,
    *,
    live: bool = False,
    user_model: UserModel | None = None,
) -> Path:
    """Write `count` rows and answer where they are; the same seed makes the same rows.

    A `live` row begins the conversation and brings a user that goes on with it; else the row holds all of it. A
    `user_model` words what the users say. Raises `DataError` with the file and the key where the personas cannot be
    used, or with the cause where the model does not answer; then nothing is written.
    """
    days = _days(read_cast(personas), count, seed, personas)
    if user_model is None:
        said = [[each.text for each in day.utterances] for day in days]
    else:
        said = asyncio.run(worded(days, user_model, seed))
    write_rows(output, map(live_row if live else told_row, days, said))
    return output


def prepare_from_rollouts(output: Path, rollouts: Path) -> Path:
    """Write a row of each conversation that a simulated user has had, see `collected.py`."""
    write_rows(output, rows_of_rollouts(rollouts))
    return output


def _days(cast: Cast, count: int, seed: int, source: Path) -> list[PlayedDay]:
    pairs = [(persona, agenda) for agenda in cast.agendas for persona in cast.personas]
    random.Random(f"calendar {seed}").shuffle(pairs)
    return [_day(*pairs[number % len(pairs)], f"calendar {seed} {number}", source) for number in range(count)]


def _day(persona: Persona, agenda: Agenda, seed: str, source: Path) -> PlayedDay:
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


def _user_model(asked: argparse.Namespace) -> UserModel | None:
    if asked.user_model_url is None:
        return None
    if asked.user_model is None:
        raise DataError("--user-model-url: name the model that it serves with --user-model.")
    return UserModel(asked.user_model_url, asked.user_model, os.environ.get(asked.api_key_variable) or "none")


def _asked_for(asked: argparse.Namespace) -> Any:
    if asked.rollouts is not None:
        return prepare_from_rollouts(asked.output, asked.rollouts)
    model = _user_model(asked)
    return prepare(asked.output, asked.count, asked.seed, asked.personas, live=asked.live, user_model=model)


def main(arguments: list[str] | None = None) -> int:
    """Run `prepare` from the command line."""
    parser = argparse.ArgumentParser(description="Make rows of the calendar environment.")
    parser.add_argument("--output", type=Path, required=True, help="where the rows are written")
    parser.add_argument("--count", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other rows (default: %(default)s)")
    parser.add_argument("--personas", type=Path, default=PERSONAS_FILE, help="personas and agendas (JSON)")
    parser.add_argument("--live", action="store_true", help="rows for user_simulation_agent: the policy answers all")
    parser.add_argument("--user-model-url", help="an endpoint or model server (…/v1) that words what users say")
    parser.add_argument("--user-model", help="the model's name there")
    parser.add_argument("--api-key-variable", default="OPENAI_API_KEY", help="holds its key (default: %(default)s)")
    parser.add_argument("--rollouts", type=Path, help="results of live rows: their conversations become rows")
    return exit_code_of(_asked_for, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
