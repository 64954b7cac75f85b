"""Digits read by espeak-ng, a speech synthesiser that is installed as a program."""

from __future__ import annotations

import io
import shutil
import subprocess
import wave
from array import array
from itertools import accumulate, pairwise
from random import Random

from nemo_gym import DataError
from resources_servers.audio_digits.sounds import RATE, Samples

PROGRAM = "espeak-ng"
TIMEOUT_S = 60.0
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ACCENTS = ("en-us", "en", "en-gb-scotland")
"""File names of espeak-ng voices. British English is `en`, because its alias `en-gb` has no speaker variants."""
SPEAKERS = ("m1", "m3", "m7", "f1", "f2", "f4")


def check_installed() -> None:
    """Raise `DataError` if espeak-ng is not installed."""
    if shutil.which(PROGRAM) is None:
        raise DataError(
            "voice: the program espeak-ng is not installed. Install it, on Debian with 'apt-get install espeak-ng', "
            "or leave voice unset to generate no speech."
        )


def speech(digits: str, rng: Random, peak: int) -> Samples:
    """Return a recording of a voice that reads digits one after another, 0 as "zero" or "oh"."""
    names = (rng.choice(("zero", "oh")), *NAMES[1:])
    voice = f"{rng.choice(ACCENTS)}+{rng.choice(SPEAKERS)}"
    command = [PROGRAM, "--stdout", "-v", voice, "-s", str(rng.randint(155, 210)), "-p", str(rng.randint(30, 70))]
    spoken = _output_of([*command, ", ".join(names[int(digit)] for digit in digits)])
    with wave.open(io.BytesIO(spoken)) as file:
        # The program writes the header before the data, so the length in the header is only a guess. `readframes`
        # stops at the end of the data.
        frames = file.readframes(file.getnframes())
        return _loud_as(peak, _resampled(array("h", frames), file.getframerate()))


def _output_of(command: list[str]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip() or f"exit code {error.returncode}"
        raise DataError(f"voice: espeak-ng failed ({said}). Check its voices with 'espeak-ng --voices=en'.") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"voice: espeak-ng did not finish within {TIMEOUT_S:.0f} s. Check that 'espeak-ng hello' works."
        ) from error


def _resampled(samples: Samples, rate: int) -> Samples:
    """Resample to `RATE`. Each new sample is the mean of the samples that it replaces."""
    sums = [0, *accumulate(samples)]
    count = len(samples) * RATE // rate
    edges = [place * rate // RATE for place in range(count + 1)]
    return array("h", ((sums[end] - sums[begin]) // (end - begin) for begin, end in pairwise(edges)))


def _loud_as(peak: int, samples: Samples) -> Samples:
    loudest = max(map(abs, samples), default=0) or 1
    return array("h", (sample * peak // loudest for sample in samples))
