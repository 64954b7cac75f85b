"""Recordings whose digits can be heard; the same seed makes the same bytes, unless a program speaks."""

import io
import shutil
import wave
from base64 import b64decode
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.jsonl import read_rows
from nemo_gym.testing import make_server, reply, rollout, serving
from resources_servers.audio_digits.app import AudioDigitsServer
from resources_servers.audio_digits.oracle import solve
from resources_servers.audio_digits.prepare import KINDS, prepare
from resources_servers.audio_digits.sounds import wav
from resources_servers.audio_digits.speech import ACCENTS, SPEAKERS, speech
from resources_servers.audio_digits.tests.hearing import FRAME, RATE, hear, marks, samples_of

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[1]
needs_espeak = pytest.mark.skipif(
    shutil.which("espeak-ng") is None, reason="espeak-ng is not installed (apt-get install espeak-ng)"
)
LARGEST_FILE, LARGEST_EXAMPLE = 100_000, 20_000
"""Bytes."""


def data_of(row):
    return row["responses_create_params"]["input"][0]["content"][1]["input_audio"]["data"]


def without_speech(row):
    """Return a row, if it is spoken with the length of its sound in place of the sound."""
    return {**row, "responses_create_params": len(data_of(row))} if row["subset"] == "spoken" else row


def made(folder, count, **arguments):
    return list(read_rows(prepare(folder / "digits.jsonl", count, embed=True, **arguments)))


@pytest.mark.parametrize("bits", [16, 8])
def test_recordings_can_be_heard(tmp_path, bits):
    rows = made(tmp_path, 60, bits=bits)
    assert {kind: sum(row["subset"] == kind for row in rows) for kind in KINDS} == dict.fromkeys(KINDS, 20)
    heard = [hear(row["subset"], data_of(row)) for row in rows]
    assert heard == [row["expected_answer"] for row in rows]


@pytest.mark.parametrize(("kind", "shortest_s"), [("beeps", 0.095), ("morse", 0.075)])
def test_tempo_can_be_followed_by_ear(tmp_path, kind, shortest_s):
    for row in (row for row in made(tmp_path, 30) if row["subset"] == kind):
        runs = marks(samples_of(b64decode(data_of(row))))
        # At most 5 beeps per second, or 15 words per minute, which have dots of 80 ms. A frame is less exact.
        assert min(length for _, length in runs) * FRAME / RATE >= shortest_s


def test_example_recordings_can_be_heard():
    rows = list(read_rows(FOLDER / "data" / "example.jsonl"))
    assert {row["subset"] for row in rows} == {*KINDS, "spoken"}
    for row in rows:
        assert len(b64decode(data_of(row))) < LARGEST_EXAMPLE
        if row["subset"] in KINDS:
            assert hear(row["subset"], data_of(row)) == row["expected_answer"]


def test_files_hold_the_embedded_recordings(tmp_path):
    embedded = made(tmp_path, 12)
    named = list(read_rows(prepare(tmp_path / "more" / "rows.jsonl", 12)))
    for one, other in zip(named, embedded, strict=True):
        text, part = one["responses_create_params"]["input"][0]["content"]
        assert part["type"] == "input_audio"
        assert part["audio_path"].startswith("rows_audio/")
        assert (tmp_path / "more" / part["audio_path"]).read_bytes() == b64decode(data_of(other))
        assert text == other["responses_create_params"]["input"][0]["content"][0]


def test_same_seed_makes_the_same_rows(tmp_path):
    assert made(tmp_path, 30) == made(tmp_path, 30)
    assert made(tmp_path, 30) == made(tmp_path, 60)[:30]
    first, second = made(tmp_path, 30), made(tmp_path, 30, seed=1)
    assert not {data_of(row) for row in first} & {data_of(row) for row in second}


def test_rows_are_small_and_of_one_format(tmp_path):
    rows = made(tmp_path, 150)
    assert max(len(b64decode(data_of(row))) for row in rows) < LARGEST_FILE
    with wave.open(io.BytesIO(b64decode(data_of(rows[0])))) as file:
        assert file.getparams()[:3] == (1, 1, 8000)


def test_length_is_that_of_every_sequence(tmp_path):
    assert {len(row["expected_answer"]) for row in made(tmp_path, 9, length=2)} == {2}


@pytest.mark.parametrize("length", [-1, 0, 101])
def test_impossible_length_is_rejected(tmp_path, length):
    with pytest.raises(DataError, match=f"length: must be from 1 to 100, found {length}"):
        prepare(tmp_path / "digits.jsonl", 4, length=length)
    assert list(tmp_path.iterdir()) == []


async def test_longest_sequence_can_be_earned(tmp_path):
    server, rows = make_server(AudioDigitsServer), made(tmp_path, 1, length=100)
    async with serving(server), rollout(server, **rows[0]) as attempt:
        spaced = " ".join(rows[0]["expected_answer"])
        assert (await attempt.verify(reply(f"Answer: {spaced}"))).reward == 1.0


def test_interrupted_rerun_keeps_the_earlier_rows(tmp_path, monkeypatch):
    output = prepare(tmp_path / "rows.jsonl", 6)
    paths = [row["responses_create_params"]["input"][0]["content"][1]["audio_path"] for row in read_rows(output)]
    before = {path: (tmp_path / path).read_bytes() for path in paths}

    sounds = iter(range(2))

    def interrupted(samples, bits):
        if next(sounds, None) is None:
            raise KeyboardInterrupt
        return wav(samples, bits)

    monkeypatch.setattr("resources_servers.audio_digits.prepare.wav", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(output, 6, seed=1)
    assert {path: (tmp_path / path).read_bytes() for path in paths} == before
    monkeypatch.undo()
    prepare(output, 6, seed=1)
    assert len(list((tmp_path / "rows_audio").iterdir())) == 6


async def test_splits_share_nothing_and_reward_the_oracle(tmp_path):
    rows = {split: made(tmp_path, 60, split=split) for split in ("train", "validation")}
    tasks = {split: {(row["subset"], row["expected_answer"]) for row in each} for split, each in rows.items()}
    assert [len(each) for each in tasks.values()] == [60, 60]
    assert not tasks["train"] & tasks["validation"]
    server = make_server(AudioDigitsServer)
    async with serving(server):
        for row in rows["validation"]:
            async with rollout(server, **row) as attempt:
                assert (await attempt.verify(reply(*solve(row)))).reward == 1.0, row


async def test_listing_all_digits_does_not_pay(tmp_path):
    server, rows = make_server(AudioDigitsServer), made(tmp_path, 120)
    earned = []
    async with serving(server):
        for row in rows:
            async with rollout(server, **row) as attempt:
                earned.append((await attempt.verify(reply("Answer: 0123456789"))).reward)
    assert sum(earned) / len(earned) < 0.01


@needs_espeak
def test_spoken_rows_are_made_with_espeak(tmp_path):
    rows, again = (made(tmp_path, 40, voice="espeak-ng") for _ in range(2))
    # Rarely, espeak-ng makes some samples of a word differently.
    assert list(map(without_speech, rows)) == list(map(without_speech, again))
    spoken = [row for row in rows if row["subset"] == "spoken"]
    assert len(spoken) == 10
    assert max(len(b64decode(data_of(row))) for row in spoken) < LARGEST_FILE
    for row in spoken:
        with wave.open(io.BytesIO(b64decode(data_of(row)))) as file:
            assert file.getparams()[:3] == (1, 1, 8000)
            # Even a fast voice takes a fifth of a second for a digit.
            assert file.getnframes() > 1600 * len(row["expected_answer"])


class Fixed:
    """Chooses the given accent and speaker, and the first of everything else, so that the voice is always the same."""

    def __init__(self, accent=ACCENTS[0], speaker=SPEAKERS[0]):
        self.chosen = {ACCENTS: accent, SPEAKERS: speaker}

    def choice(self, values):
        return self.chosen.get(values, values[0])

    def randint(self, low, high):
        return low


@needs_espeak
def test_espeak_reads_every_digit():
    read = {digits: speech(digits, Fixed(), 20_000) for digits in ("37", "377", "38")}
    assert len(read["377"]) > len(read["37"])
    assert read["38"] != read["37"]
    loudest = [max(map(abs, speech("37", Fixed(), peak))) for peak in (5_000, 20_000)]
    assert loudest == [pytest.approx(5_000, abs=1), pytest.approx(20_000, abs=1)]


@needs_espeak
def test_all_speakers_sound_different():
    voices = [Fixed(accent, speaker) for accent in ACCENTS for speaker in SPEAKERS]
    assert len({bytes(speech("37", voice, 20_000)) for voice in voices}) == len(voices)


def test_missing_espeak_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"espeak-ng is not installed. Install it, on Debian with 'apt-get install"):
        prepare(tmp_path / "digits.jsonl", 4, voice="espeak-ng")
    assert list(tmp_path.iterdir()) == []
