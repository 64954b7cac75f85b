"""Digits as sounds: telephone tones, groups of beeps and Morse code, in mono at 8 kHz."""

from __future__ import annotations

import io
import math
import sys
import wave
from array import array
from collections.abc import Sequence
from operator import add
from random import Random
from typing import Literal, TypeAlias

RATE = 8000
"""Samples per second."""
LOUDEST = 27_000
"""The peak amplitude of a sound before noise is added."""
KEY_ROWS = (697, 770, 852, 941)
KEY_COLUMNS = (1209, 1336, 1477)
KEYPAD = ("123", "456", "789", "*0#")
MORSE = {"0": "-----", **{str(n): "." * n + "-" * (5 - n) for n in range(1, 6)}} | {
    str(n): "-" * (n - 5) + "." * (10 - n) for n in range(6, 10)
}
ATTACK_S = 0.003
"""Seconds in which a tone fades in and out, because an abrupt start or end would click."""

UNSIGNED = bytes((byte + 128) % 256 for byte in range(256))
"""8-bit samples are unsigned in WAV files."""

Samples: TypeAlias = "array[int]"
"""Samples as signed 16-bit integers."""


def telephone(digits: str, rng: Random, peak: int) -> Samples:
    length_s, pause_s = rng.uniform(0.06, 0.12), rng.uniform(0.05, 0.1)
    tones = {digit: tone(keypad_tones(digit), length_s, peak) for digit in {*digits}}
    return joined([tones[digit] for digit in digits], silence(pause_s))


def beeps(digits: str, rng: Random, peak: int) -> Samples:
    """Return a group of beeps per digit: ten beeps for 0, one for 1 and so on. People can count 5 beeps per second."""
    length_s, pitch = rng.uniform(0.1, 0.105), rng.uniform(500, 1000)
    beep, gap = tone([pitch], length_s, peak), silence(length_s)
    groups = [joined([beep] * (int(digit) or 10), gap) for digit in digits]
    return joined(groups, silence(length_s * rng.uniform(4, 5)))


def morse(digits: str, rng: Random, peak: int) -> Samples:
    """Return Morse code, at 13 to 15 words per minute. Dashes and the pauses between digits last three dots each."""
    dot_s, pitch = rng.uniform(0.08, 0.09), rng.uniform(500, 1000)
    signals = {".": tone([pitch], dot_s, peak), "-": tone([pitch], 3 * dot_s, peak)}
    codes = [joined([signals[mark] for mark in MORSE[digit]], silence(dot_s)) for digit in digits]
    return joined(codes, silence(3 * dot_s))


def keypad_tones(digit: str) -> tuple[int, int]:
    """Return the two frequencies of a key, in hertz."""
    row = next(number for number, keys in enumerate(KEYPAD) if digit in keys)
    return KEY_ROWS[row], KEY_COLUMNS[KEYPAD[row].index(digit)]


def tone(frequencies: Sequence[float], length_s: float, peak: int) -> Samples:
    """Return the sum of sine waves of the same volume."""
    count, attack = round(length_s * RATE), ATTACK_S * RATE
    steps = [2 * math.pi * frequency / RATE for frequency in frequencies]
    volume = peak / len(steps)

    def sample(place: int) -> int:
        share = min(1.0, place / attack, (count - place) / attack)
        return round(volume * share * sum([math.sin(step * place) for step in steps]))

    return array("h", map(sample, range(count)))


def silence(length_s: float) -> Samples:
    return array("h", bytes(2 * round(length_s * RATE)))


def joined(sounds: Sequence[Samples], pause: Samples) -> Samples:
    """Concatenate sounds with a pause between them."""
    whole = array("h")
    for number, sound in enumerate(sounds):
        if number:
            whole += pause
        whole += sound
    return whole


def with_noise(samples: Samples, level: int, rng: Random) -> Samples:
    """Add white noise between `-level` and `level`."""
    values = [round((byte / 127.5 - 1) * level) for byte in range(256)]
    return array("h", map(add, samples, map(values.__getitem__, rng.randbytes(len(samples)))))


def wav(samples: Samples, bits: Literal[8, 16] = 16) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(bits // 8)
        writer.setframerate(RATE)
        writer.writeframes(samples.tobytes() if bits == 16 else _higher_bytes(samples).translate(UNSIGNED))
    return file.getvalue()


def _higher_bytes(samples: Samples) -> bytes:
    return samples.tobytes()[int(sys.byteorder == "little") :: 2]
