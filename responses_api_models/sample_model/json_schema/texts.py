"""Random strings that match the length limits, the format and the pattern of a schema."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random
from uuid import UUID

from nemo_gym.jsonl import JsonObject
from responses_api_models.sample_model.json_schema.references import SchemaError
from responses_api_models.sample_model.json_schema.validity import meets_own_keywords

TRIES = 2000
LONGEST_TEXT = 100_000
WORDS = ("apple", "bridge", "cloud", "delta", "ember", "forest", "garden", "harbor", "island", "lantern", "meadow")
_ALPHABETS = (
    string.digits, string.ascii_lowercase, string.ascii_uppercase, string.ascii_letters, "0123456789abcdef",
    string.ascii_letters + string.digits + "_-", "".join(map(chr, range(32, 127))),
)  # fmt: skip


def _date(rng: Random) -> str:
    return f"{rng.randint(1970, 2049)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _clock(rng: Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


def _host(rng: Random) -> str:
    return f"{rng.choice(WORDS)}.example.{rng.choice(('com', 'net', 'org'))}"


FORMATS: dict[str, Callable[[Random], str]] = {
    "date": _date,
    "time": lambda rng: f"{_clock(rng)}:00Z",
    "date-time": lambda rng: f"{_date(rng)}T{_clock(rng)}:00Z",
    "duration": lambda rng: f"P{rng.randint(0, 99)}DT{rng.randint(0, 23)}H",
    **dict.fromkeys(("email", "idn-email"), lambda rng: f"{rng.choice(WORDS)}{rng.randint(1, 99)}@{_host(rng)}"),
    **dict.fromkeys(("hostname", "idn-hostname"), _host),
    "ipv4": lambda rng: ".".join(str(rng.randint(0, 255)) for _ in range(4)),
    "ipv6": lambda rng: ":".join(f"{rng.getrandbits(16):x}" for _ in range(8)),
    **dict.fromkeys(("uri", "uri-reference", "iri", "iri-reference"), lambda rng: f"https://{_host(rng)}/"),
    "uuid": lambda rng: str(UUID(int=rng.getrandbits(128), version=4)),
    "json-pointer": lambda rng: f"/{rng.choice(WORDS)}/{rng.randint(0, 9)}",
}


def sample_text(schema: JsonObject, rng: Random, at: str) -> str:
    """Return a random string: a generated one, the schema's `default`, or one of its `examples`."""
    shortest = int(schema.get("minLength", 0))
    longest = int(schema.get("maxLength", max(shortest, LONGEST_TEXT)))
    if longest < shortest:
        raise SchemaError(at, f"no string has at least {shortest} and at most {longest} characters")
    if shortest > LONGEST_TEXT:
        raise SchemaError(at, f"at most {LONGEST_TEXT} characters can be generated; lower minLength")

    def words(rng: Random) -> str:
        text = " ".join(rng.sample(WORDS, rng.randint(1, 3)))
        while len(text) < shortest:
            text += " " + rng.choice(WORDS)
        return text if len(text) <= longest else text[: rng.randint(max(shortest, min(1, longest)), longest)]

    def characters(rng: Random) -> str:
        return "".join(rng.choices(rng.choice(_ALPHABETS), k=rng.randint(shortest, min(longest, shortest + 8))))

    kinds: list[Callable[[Random], str]] = [words]
    if schema.get("format") in FORMATS:
        kinds = [FORMATS[schema["format"]]]
    elif "pattern" in schema:
        kinds = [words, _clock, *FORMATS.values(), *[characters] * len(FORMATS)]
    examples = schema.get("examples")
    given = [schema.get("default"), *(examples if isinstance(examples, list) else ())]
    kinds += [lambda rng, text=text: text for text in given if isinstance(text, str)]
    for _ in range(TRIES):
        text = rng.choice(kinds)(rng)
        if meets_own_keywords(text, schema):
            return text
    raise SchemaError(at, "no string with the pattern, format and length was found; add an enum or examples")
