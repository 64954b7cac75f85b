r"""Generate rows: sequences of digits as telephone tones, beeps, Morse code and, with espeak-ng, speech.

python resources_servers/audio_digits/prepare.py --count 500 --output <rows.jsonl>
python resources_servers/audio_digits/prepare.py --voice espeak-ng --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.data.media_files import MediaFiles
from nemo_gym.jsonl import write_rows
from resources_servers.audio_digits.grading import LONGEST
from resources_servers.audio_digits.sounds import (
    LOUDEST,
    Samples,
    beeps,
    joined,
    morse,
    silence,
    telephone,
    wav,
    with_noise,
)
from resources_servers.audio_digits.speech import check_installed, speech

Part = dict[str, Any]

INSTRUCTION = (
    "End with a line of the form 'Answer: …' that holds nothing but the digits, in the order in which you hear them."
)

MOST_DIGITS = LONGEST // 2
"""Maximum number of digits of a sequence, so that an answer with separators is not longer than `LONGEST`."""


class Kind(NamedTuple):
    """A way to turn digits into sound."""

    sound: Callable[[str, Random, int], Samples]
    lengths: tuple[int, int]
    """The smallest and the largest number of digits."""
    prompts: tuple[str, ...]


KINDS = {
    "dtmf": Kind(
        telephone,
        (4, 6),
        (
            "A number is dialled on a telephone keypad. Each key makes two tones at once (DTMF): one for its row, one "
            "for its column. Which digits are dialled?",
            "The recording holds telephone keypad tones (DTMF), one for each digit. Which digits are they?",
        ),
    ),
    "beeps": Kind(
        beeps,
        (3, 4),
        (
            "Each digit is a group of beeps: as many beeps as its value, and ten beeps for 0. The pause between two "
            "groups is longer. Which digits do you hear?",
            "A device reads its counter in beeps. One beep is 1, nine beeps are 9, and ten beeps are 0. After each "
            "digit there is a longer pause. What does the counter show?",
        ),
    ),
    "morse": Kind(
        morse,
        (3, 5),
        (
            "The recording holds digits in Morse code. Which digits are they?",
            "A ship sends its number in Morse code, five signals for each digit. Which digits does it send?",
        ),
    ),
}
SPOKEN = Kind(
    speech,
    (4, 6),
    (
        "A voice reads digits one after another. Which digits do you hear? Write 'zero' and 'oh' as 0.",
        "Write down the digits that are dictated in this recording. Both 'zero' and 'oh' are 0.",
    ),
)


class Task(NamedTuple):
    kind: str
    digits: str


def prepare(
    output: Path,
    count: int = 500,
    seed: int = 0,
    split: Split | None = None,
    *,
    embed: bool = False,
    voice: Literal["espeak-ng"] | None = None,
    length: int | None = None,
    bits: Literal[8, 16] = 8,
) -> Path:
    """Write `count` rows and return their path. The recordings are WAV files in the folder `<output>_audio`.

    split: only rows of this split; for each kind of sound, the two splits have no sequence of digits in common
    embed: write the recordings into the rows, as base64, instead of files
    voice: also generate spoken digits, with this speech program
    length: the number of digits of every sequence, at most 100; by default it varies
    bits: the size of a sample; 16 bits have less noise and make files twice as large

    Raises `DataError` if `length` is out of range or the voice is not installed.
    """
    if length is not None and not 1 <= length <= MOST_DIGITS:
        raise DataError(f"length: must be from 1 to {MOST_DIGITS}, found {length}.")
    kinds = dict(KINDS)
    if voice:
        check_installed()
        kinds["spoken"] = SPOKEN
    tasks = split_rows(_tasks(Random(f"audio digits {seed}"), kinds, length), split, count)
    files = MediaFiles(output, "audio")
    as_part = _embedded if embed else partial(_saved, files)
    write_rows(output, (_row(task, kinds[task.kind], seed, bits, as_part) for task in tasks))
    files.remove_unused()
    return output


def _tasks(rng: Random, kinds: dict[str, Kind], length: int | None) -> Iterator[Task]:
    for name in itertools.cycle(kinds):
        yield Task(name, "".join(rng.choices("0123456789", k=length or rng.randint(*kinds[name].lengths))))


def _row(
    task: Task, kind: Kind, seed: int, bits: Literal[8, 16], as_part: Callable[[str, bytes], Part]
) -> dict[str, Any]:
    rng = Random(f"audio digits {seed} {task.kind} {task.digits}")
    text = f"{rng.choice(kind.prompts)}\n\n{INSTRUCTION}"
    audio = {"type": "input_audio", **as_part(task.kind, wav(_recording(kind, task.digits, rng), bits))}
    message = {"role": "user", "content": [{"type": "input_text", "text": text}, audio]}
    return {"responses_create_params": {"input": [message]}, "expected_answer": task.digits, "subset": task.kind}


def _recording(kind: Kind, digits: str, rng: Random) -> Samples:
    """Return the sound of digits at a random volume and tempo, with noise and a little silence around it."""
    peak = round(LOUDEST * rng.uniform(0.25, 1))
    before, after = silence(rng.uniform(0.05, 0.15)), silence(rng.uniform(0.05, 0.15))
    whole = joined([before, kind.sound(digits, rng, peak), after], silence(0))
    return with_noise(whole, round(peak * rng.uniform(0.01, 0.1)), rng)


def _embedded(kind: str, data: bytes) -> Part:
    return {"input_audio": {"data": b64encode(data).decode("ascii"), "format": "wav"}}


def _saved(files: MediaFiles, kind: str, data: bytes) -> Part:
    return {"audio_path": files.save(data, kind, "wav")}


if __name__ == "__main__":
    run_prepare(prepare)
