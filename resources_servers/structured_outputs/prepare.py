r"""Generate rows that ask for the description of a thing in a given format and with a given JSON Schema.

python resources_servers/structured_outputs/prepare.py --count 1000 --seed 1 --output <rows.jsonl>
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any, Literal

from nemo_gym import Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows

SUBMIT = "submit_document"
Format = Literal["json", "yaml", "xml", "toml", "csv"]
FORMATS: tuple[Format, ...] = ("json", "yaml", "xml", "toml", "csv")
MODES = ("text", "tool_call")

TEXT, COUNT, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _between(low: float, high: float) -> dict[str, Any]:
    return {"type": "number", "minimum": low, "maximum": high}


THINGS: dict[str, dict[str, Any]] = {
    "a mountain hut": {
        "name": TEXT, "height_m": COUNT, "beds": {"type": "integer", "minimum": 1}, "is_open_in_winter": FLAG,
        "paths": TEXTS, "price_per_night": _between(0, 500), "season": _one_of("summer", "winter", "all year"),
        "warden": {"type": "object", "properties": {"name": TEXT, "years_there": COUNT}},
    },
    "a second-hand bicycle for sale": {
        "brand": TEXT, "gears": {"type": "integer", "minimum": 1, "maximum": 33}, "frame_cm": _between(30, 70),
        "condition": _one_of("new", "good", "worn"), "has_lights": FLAG, "faults": TEXTS, "price": COUNT,
        "seller": {"type": "object", "properties": {"name": TEXT, "town": TEXT}},
    },
    "a recipe for a soup": {
        "title": TEXT, "serves": {"type": "integer", "minimum": 1, "maximum": 20}, "minutes": COUNT, "is_vegan": FLAG,
        "ingredients": {
            "type": "array", "minItems": 2,
            "items": {"type": "object", "properties": {"name": TEXT, "amount": TEXT, "grams": COUNT}},
        },
        "steps": TEXTS, "difficulty": _one_of("easy", "medium", "hard"), "cost": _between(0, 50),
    },
    "a train journey": {
        "from": TEXT, "to": TEXT, "changes": COUNT, "hours": _between(0, 48), "is_direct": FLAG, "stops": TEXTS,
        "class": _one_of("first", "second"),
        "train": {"type": "object", "properties": {"number": COUNT, "kind": TEXT}},
    },
    "a book in a small library": {
        "title": TEXT, "author": TEXT, "pages": {"type": "integer", "minimum": 1}, "is_lent": FLAG, "subjects": TEXTS,
        "language": _one_of("en", "fr", "de", "other"), "weight_kg": _between(0, 10),
        "shelf": {"type": "object", "properties": {"room": TEXT, "number": COUNT}},
    },
    "a concert in a village hall": {
        "programme": TEXT, "doors_open": {"type": "string", "format": "time"}, "seats": COUNT, "is_sold_out": FLAG,
        "ticket_price": _between(0, 200), "season": _one_of("spring", "summer", "autumn", "winter"),
        "pieces": {
            "type": "array", "minItems": 1,
            "items": {"type": "object", "properties": {"composer": TEXT, "title": TEXT, "minutes": COUNT}},
        },
        "hall": {"type": "object", "properties": {"name": TEXT, "street": TEXT, "has_ramp": FLAG}},
    },
    "a visit to the vet": {
        "animal": _one_of("dog", "cat", "rabbit", "parrot"), "name": TEXT, "weight_kg": _between(0, 90), "age": COUNT,
        "is_vaccinated": FLAG, "complaints": TEXTS, "date": {"type": "string", "format": "date"},
        "owner": {"type": "object", "properties": {"name": TEXT, "email": {"type": "string", "format": "email"}}},
    },
    "a repair order of a bicycle workshop": {
        "order_number": {"type": "integer", "minimum": 1000, "maximum": 9999}, "customer": TEXT, "is_urgent": FLAG,
        "received_on": {"type": "string", "format": "date"}, "hours": _between(0, 40), "work": TEXTS,
        "state": _one_of("waiting", "in progress", "done"),
        "parts": {
            "type": "array", "minItems": 1,
            "items": {"type": "object", "properties": {"name": TEXT, "quantity": COUNT, "price": _between(0, 999)}},
        },
    },
    "a day at a weather station": {
        "station": TEXT, "altitude_m": {"type": "integer", "minimum": -400, "maximum": 9000}, "rain_mm": COUNT,
        "warmest_celsius": _between(-60, 60), "is_automatic": FLAG, "observers": TEXTS,
        "sky": _one_of("clear", "cloudy", "overcast"),
        "wind": {"type": "object", "properties": {"direction": _one_of("N", "E", "S", "W"), "km_per_h": COUNT}},
    },
    "a garden plot to let": {
        "plot_number": {"type": "integer", "minimum": 1}, "square_metres": {"type": "integer", "minimum": 10},
        "rent_per_year": _between(0, 5000), "has_shed": FLAG, "trees": TEXTS, "soil": _one_of("sand", "loam", "clay"),
        "free_from": {"type": "string", "format": "date"},
        "contact": {"type": "object", "properties": {"name": TEXT, "club": TEXT, "is_in_person": FLAG}},
    },
}  # fmt: skip

NAMES = {"json": "JSON", "yaml": "YAML", "xml": "XML", "toml": "TOML", "csv": "CSV"}
HINTS = {
    "xml": " One root element of any name holds an element for each property; a list is its element repeated.",
    "csv": " The first line names the columns; write two rows or more.",
}


def prepare(
    output: Path, count: int = 100, seed: int = 0, split: Split | None = None, format: Sequence[Format] = FORMATS
) -> Path:
    """Write `count` rows and return the output path. The same seed gives the same rows.

    format: a format of the documents; by default all five
    """
    write_rows(output, split_rows(_rows(random.Random(seed), format), split, count, key=_task))
    return output


def _rows(rng: random.Random, formats: Sequence[Format]) -> Iterator[dict[str, Any]]:
    for response_mode, schema_type in cycle(product(MODES, formats)):
        yield row(rng, schema_type, response_mode)


def _task(row: dict[str, Any]) -> object:
    """Return a key that identifies a task. It does not depend on the order of the schema's properties."""
    return [row["schema_type"], row["response_mode"], json.loads(row["schema_str"])]


def row(rng: random.Random, schema_type: str, response_mode: str) -> dict[str, Any]:
    """Draw a row that asks for a description of a random thing with some of its possible properties."""
    thing = rng.choice(sorted(THINGS))
    properties = {
        name: each
        for name, each in THINGS[thing].items()
        if schema_type != "csv" or each["type"] not in ("array", "object")
    }
    chosen = rng.sample(sorted(properties), rng.randint(3, min(6, len(properties))))
    schema: dict[str, Any] = {"type": "object", "properties": {name: properties[name] for name in chosen}}
    if schema_type == "csv":
        schema = {"type": "array", "minItems": 2, "items": schema}
    in_call = response_mode == "tool_call"
    where = f"Hand it in with the tool {SUBMIT}." if in_call else "Answer with the document and nothing else."
    prompt = (
        f"Make up {thing} and describe it as {NAMES[schema_type]}. The document must follow this JSON Schema, with "
        f"every property that it names and no other.{HINTS.get(schema_type, '')} {where}\n\n{json.dumps(schema)}"
    )
    asked: dict[str, Any] = {"input": [{"role": "user", "content": prompt}]}
    if in_call:
        asked["tools"] = [_tool(schema if schema_type == "json" else TEXT, NAMES[schema_type])]
    return {
        "responses_create_params": asked,
        "schema_str": json.dumps(schema),
        "schema_type": schema_type,
        "response_mode": response_mode,
        **({"tool_name": SUBMIT, "tool_payload_key": "document"} if in_call else {}),
    }


def _tool(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "type": "function",
        "name": SUBMIT,
        "description": f"Hand in the document, which is {name}.",
        "parameters": {"type": "object", "properties": {"document": document}, "required": ["document"]},
        "strict": False,
    }


if __name__ == "__main__":
    run_prepare(prepare)
