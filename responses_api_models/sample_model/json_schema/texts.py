"""Texts that a plain schema allows."""

from __future__ import annotations

from random import Random

from responses_api_models.sample_model.json_schema.formats import FORMATS
from responses_api_models.sample_model.json_schema.merging import Plain
from responses_api_models.sample_model.json_schema.patterns import Pattern, PatternError, pattern
from responses_api_models.sample_model.json_schema.references import SchemaError

LONGEST_TEXT = 100_000
TRIES = 60
WORDS = ("apple", "bridge", "cloud", "delta", "ember", "forest", "garden", "harbor", "island", "lantern", "meadow")


def sample_text(plain: Plain, rng: Random, at: str) -> str:
    """A text that meets the lengths (in characters), the pattern and the format; an unknown format asks nothing."""
    shortest = int(plain.get("minLength", 0))
    longest = int(plain["maxLength"]) if "maxLength" in plain else None
    if longest is not None and longest < shortest:
        raise SchemaError(at, f"no text has at least {shortest} and at most {longest} characters")
    if shortest > LONGEST_TEXT:
        raise SchemaError(at, f"texts of more than {LONGEST_TEXT} characters are not made")
    try:
        wanted = _patterns(plain)
        if wanted:
            return _meeting(wanted, rng, shortest, longest)
    except PatternError as error:
        raise SchemaError(at, str(error)) from error
    text = " ".join(rng.sample(WORDS, rng.randint(1, 3)))
    while len(text) < shortest:
        text += " " + rng.choice(WORDS)
    if longest is None or len(text) <= longest:
        return text
    return text[: rng.randint(max(shortest, min(1, longest)), longest)]


def _patterns(plain: Plain) -> list[Pattern]:
    """All patterns to be met; those that could not be merged are in `allOf`."""
    parts = (plain, *plain.get("allOf", ()))
    texts = [part["pattern"] for part in parts if "pattern" in part]
    texts += [FORMATS[part["format"]] for part in parts if part.get("format") in FORMATS]
    return [pattern(text) for text in dict.fromkeys(texts)]


def _meeting(wanted: list[Pattern], rng: Random, shortest: int, longest: int | None) -> str:
    if len(wanted) == 1:
        return wanted[0].sample(rng, shortest, longest)
    for attempt in range(TRIES):
        text = wanted[attempt % len(wanted)].sample(rng, shortest, longest)
        if all(one.matches(text) for one in wanted):
            return text
    raise PatternError("no text was found that meets all its patterns and its format")
