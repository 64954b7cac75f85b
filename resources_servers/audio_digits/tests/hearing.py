"""Hear the digits of a recording: decode its tones, beeps or Morse code from nothing but the samples."""

import io
import math
import re
import wave
from array import array
from base64 import b64decode
from itertools import groupby

RATE = 8000
FRAME = 40
"""Samples per frame: 5 ms."""
LOW, HIGH = (697, 770, 852, 941), (1209, 1336, 1477)
KEYS = "123456789*0#"
MORSE = ["-----", ".----", "..---", "...--", "....-", ".....", "-....", "--...", "---..", "----."]


def hear(kind, data):
    """Return the digits in a WAV file, given as base64."""
    samples = samples_of(b64decode(data, validate=True))
    return {"dtmf": dialled, "beeps": counted, "morse": decoded}[kind](samples)


def samples_of(data):
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getframerate()) == (1, RATE)
        frames = file.readframes(file.getnframes())
        assert len(frames) == file.getnframes() * file.getsampwidth(), "the recording is cut off"
        return array("h", frames) if file.getsampwidth() == 2 else array("h", ((v - 128) << 8 for v in frames))


def sounds_and_pauses(samples):
    """Return [is it a sound, its first frame, its frames] for each run of frames."""
    energy = [sum(v * v for v in samples[at : at + FRAME]) for at in range(0, len(samples) - FRAME + 1, FRAME)]
    threshold = max(energy) / 6
    runs, at = [], 0
    for is_sound, frames in groupby(value > threshold for value in energy):
        length = len(list(frames))
        runs.append((is_sound, at, length))
        at += length
    return runs


def power(samples, frequency):
    """Return the power of a frequency (Goertzel's algorithm)."""
    factor = 2 * math.cos(2 * math.pi * frequency / RATE)
    before, last = 0.0, 0.0
    for sample in samples:
        before, last = last, sample + factor * last - before
    return last * last + before * before - factor * last * before


def dialled(samples):
    keys = ""
    for is_sound, at, length in sounds_and_pauses(samples):
        if is_sound:
            sound = samples[at * FRAME : (at + length) * FRAME]
            low, high = ([power(sound, each) for each in group] for group in (LOW, HIGH))
            keys += KEYS[3 * low.index(max(low)) + high.index(max(high))]
    return keys


def marks(samples):
    """Return [is it a sound, its frames] without the silence around the recording."""
    runs = sounds_and_pauses(samples)
    inner = runs[not runs[0][0] : len(runs) - (not runs[-1][0])]
    return [(is_sound, length) for is_sound, _, length in inner]


def counted(samples):
    runs = marks(samples)
    unit = min(length for is_sound, length in runs if is_sound)
    text = "".join("|" if is_sound else " " if length > 3 * unit else "" for is_sound, length in runs)
    return "".join(str(len(group) % 10) for group in text.split())


def decoded(samples):
    runs = marks(samples)
    # Every digit but 0 has a dot and every one but 5 a dash, so the pauses within digits give the length of a dot.
    unit = min(length for is_sound, length in runs if not is_sound)
    code = "".join(("-" if long else ".") if is_sound else (" " if long else "")
                   for is_sound, length in runs for long in [length > 2 * unit])  # fmt: skip
    assert re.fullmatch(r"[.-]{5}( [.-]{5})*", code), code
    return "".join(str(MORSE.index(each)) for each in code.split())
