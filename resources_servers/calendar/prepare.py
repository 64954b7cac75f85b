"""Generate rows: conversations of personas with their assistant, each with the calendar that must result from it.

python resources_servers/calendar/prepare.py --count 100 --output <rows.jsonl>
python resources_servers/calendar/prepare.py --live --count 100 --output <rows.jsonl>
python resources_servers/calendar/prepare.py --rollouts <results of live rows> --output <rows.jsonl>
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path

from nemo_gym import DataError, Split, UsageError, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.calendar.collected import rows_of_rollouts
from resources_servers.calendar.conversation import Conversation, DayIsFull, PlayedDay
from resources_servers.calendar.personas import PERSONAS_FILE, Agenda, Cast, Persona, read_cast
from resources_servers.calendar.rows import complete_row, live_row
from resources_servers.calendar.wording import UserModel, reworded

DRAWS = 50
"""The number of retries to draw a day for one persona and agenda. After that, the agenda counts as too full."""


def prepare(
    output: Path,
    count: int = 100,
    seed: int = 0,
    personas: Path = PERSONAS_FILE,
    *,
    live: bool = False,
    user_model_url: str | None = None,
    user_model: str | None = None,
    api_key_variable: str = "OPENAI_API_KEY",
    rollouts: Path | None = None,
    split: Split | None = None,
) -> Path:
    """Write `count` rows and return their path.

    personas: a JSON file with personas and agendas
    live: write rows for user_simulation_agent, in which the policy answers every message
    user_model_url: an endpoint or model server (…/v1) that rewords the users' messages
    user_model: the name of the model at that endpoint
    api_key_variable: the environment variable with the endpoint's key
    rollouts: the results of live rows; each successful conversation becomes a complete row

    Raises `DataError` if the personas cannot be used or the model does not answer. Nothing is written then.
    """
    if rollouts is not None and split is not None:
        raise UsageError("argument --split: not allowed with argument --rollouts, whose rows have a split already")
    if rollouts is not None:
        write_rows(output, rows_of_rollouts(rollouts))
        return output
    days = list(split_rows(_days(read_cast(personas), seed, personas), split, count, key=_task))
    if user_model_url is None:
        messages = [[each.text for each in day.utterances] for day in days]
    elif user_model is None:
        raise DataError("--user-model-url: also name the model with --user-model.")
    else:
        model = UserModel(user_model_url, user_model, os.environ.get(api_key_variable) or "none")
        messages = asyncio.run(reworded(days, model, seed))
    write_rows(output, map(live_row if live else complete_row, days, messages))
    return output


def _days(cast: Cast, seed: int, source: Path) -> Iterator[PlayedDay]:
    pairs = [(persona, agenda) for agenda in cast.agendas for persona in cast.personas]
    random.Random(f"calendar {seed}").shuffle(pairs)
    for number in numbers():
        yield _day(*pairs[number % len(pairs)], f"calendar {seed} {number}", source)


def _task(day: PlayedDay) -> object:
    """Return the agenda and sentences, which decide a day's split. Its live and complete rows get the same split."""
    return [day.agenda.name, *(each.text for each in day.utterances)]


def _day(persona: Persona, agenda: Agenda, seed: str, source: Path) -> PlayedDay:
    for draw in numbers():
        try:
            return Conversation(persona, agenda, random.Random(f"{seed} {draw}")).play()
        except DayIsFull as full:
            if draw == DRAWS:
                raise DataError(
                    f"{source}: the events of agenda '{agenda.name}' do not fit between {agenda.min_time} and "
                    f"{agenda.max_time}. Give the agenda a longer day or fewer events."
                ) from full
        except ValueError as error:
            raise DataError(f"{source}: the agenda '{agenda.name}': {error}") from error
    raise AssertionError("numbers() never ends")


if __name__ == "__main__":
    run_prepare(prepare)
