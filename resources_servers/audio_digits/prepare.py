r"""Make rows: sequences of digits as telephone tones, beeps, Morse code and, with espeak-ng, speech.

python resources_servers/audio_digits/prepare.py --count 500 --output <rows.jsonl>
python resources_servers/audio_digits/prepare.py --voice espeak-ng --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
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

INSTRUCTION = (
    "End with a line of the form 'Answer: …' that holds nothing but the digits, in the order in which you hear them."
)


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
    bits: Literal[8, 16] = 16,
) -> Path:
    """Write `count` rows and return their path. Their recordings are WAV files in the folder `<output>_audio`.

    split: only rows of this split; the two splits have no sequence of a kind in common
    embed: write the recordings into the rows, as base64, instead of files
    voice: add spoken digits, read by this program
    length: the number of digits of every sequence; by default it varies
    bits: the size of a sample; 8 bits make files half as large

    Raises `DataError` if the voice is not installed.
    """
    kinds = dict(KINDS)
    if voice:
        check_installed()
        kinds["spoken"] = SPOKEN
    tasks = split_rows(_tasks(Random(f"audio digits {seed}"), kinds, length), split, count)
    folder = None if embed else output.with_name(f"{output.stem}_audio")
    write_rows(output, _rows(tasks, kinds, seed, bits, folder))
    return output


def _tasks(rng: Random, kinds: dict[str, Kind], length: int | None) -> Iterator[Task]:
    for name in itertools.cycle(kinds):
        yield Task(name, "".join(rng.choices("0123456789", k=length or rng.randint(*kinds[name].lengths))))


def _rows(
    tasks: Iterable[Task], kinds: dict[str, Kind], seed: int, bits: Literal[8, 16], folder: Path | None
) -> Iterator[dict[str, Any]]:
    for number, (name, digits) in enumerate(tasks, start=1):
        rng, kind = Random(f"audio digits {seed} {name} {digits}"), kinds[name]
        text = f"{rng.choice(kind.prompts)}\n\n{INSTRUCTION}"
        audio = _audio_part(wav(_recording(kind, digits, rng), bits), number, folder)
        message = {"role": "user", "content": [{"type": "input_text", "text": text}, audio]}
        yield {"responses_create_params": {"input": [message]}, "expected_answer": digits, "subset": name}


def _recording(kind: Kind, digits: str, rng: Random) -> Samples:
    """Return the sound of digits at a random volume and tempo, with noise and a little silence around it."""
    peak = round(LOUDEST * rng.uniform(0.25, 1))
    before, after = silence(rng.uniform(0.05, 0.15)), silence(rng.uniform(0.05, 0.15))
    whole = joined([before, kind.sound(digits, rng, peak), after], silence(0))
    return with_noise(whole, round(peak * rng.uniform(0.01, 0.1)), rng)


def _audio_part(data: bytes, number: int, folder: Path | None) -> dict[str, Any]:
    if folder is None:
        return {"type": "input_audio", "input_audio": {"data": b64encode(data).decode("ascii"), "format": "wav"}}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number:05}.wav"
    file.write_bytes(data)
    return {"type": "input_audio", "audio_path": f"{folder.name}/{file.name}"}


if __name__ == "__main__":
    run_prepare(prepare)
