"""Arrays that a plain schema allows."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from responses_api_models.sample_model.json_schema.drawing import MOST_VALUES, TRIES, Drawing
from responses_api_models.sample_model.json_schema.merging import Plain
from responses_api_models.sample_model.json_schema.references import Schema, SchemaError, pointer_to
from responses_api_models.sample_model.json_schema.validity import fingerprint

MORE_ITEMS = 3
"""An array is made at most this much longer than it must be."""


class Place(NamedTuple):
    """One item to be made: what is asked of it, and the JSON pointer to that."""

    schema: Schema
    at: str


class Sizes(NamedTuple):
    """How many items there may be, and how many of them are to be what the array must contain."""

    fewest: int
    most: int
    contained: int


def sample_array(draw: Drawing, plain: Plain, at: str, depth: float) -> list[Any]:
    """An array within its sizes; items that are optional and have no value end it early."""
    sizes = _sizes(plain, at)
    places = _places(draw, plain, sizes, at, depth)
    checks = {word: plain[word] for word in ("contains", "minContains", "maxContains") if word in plain}
    for _ in range(TRIES if "maxContains" in plain else 1):
        items = _items(draw, places, sizes, depth, is_unique=bool(plain.get("uniqueItems")))
        if "maxContains" not in plain or draw.is_valid(items, checks):
            return items
    raise SchemaError(at, f"no array was found that contains at most {plain['maxContains']} of what it contains")


def _sizes(plain: Plain, at: str) -> Sizes:
    contained = int(plain.get("minContains", 1)) if "contains" in plain else 0
    fewest = max(int(plain.get("minItems", 0)), contained)
    most = int(plain.get("maxItems", MOST_VALUES))
    if _rest(plain) is False:
        most = min(most, len(plain.get("prefixItems", ())))
    if fewest > most:
        raise SchemaError(at, f"an array would need {fewest} items and may have {most}")
    if fewest > MOST_VALUES:
        raise SchemaError(at, f"arrays of more than {MOST_VALUES} items are not made")
    return Sizes(fewest, most, contained)


def _rest(plain: Plain) -> Schema:
    return plain.get("items", plain.get("unevaluatedItems", True))


def _places(draw: Drawing, plain: Plain, sizes: Sizes, at: str, depth: float) -> list[Place]:
    heads = plain.get("prefixItems", ())
    size = sizes.fewest
    if not draw.is_tight(depth):
        usual = min(sizes.most, max(size, len(heads) + sizes.contained))
        size = draw.rng.randint(usual, min(sizes.most, usual + max(0, MORE_ITEMS - int(depth))))
    # What is to be contained goes behind the fixed places, which may ask for something else.
    first_free = len(heads) if size - len(heads) >= sizes.contained else 0
    holders = set(draw.rng.sample(range(first_free, size), sizes.contained))
    places = []
    for index in range(size):
        where = pointer_to(at, "prefixItems", index) if index < len(heads) else f"{at}/items"
        schema = heads[index] if index < len(heads) else _rest(plain)
        if index in holders:
            schema = draw.flattener.both([schema, plain["contains"]])
        places.append(Place(schema, where))
    return places


def _items(draw: Drawing, places: list[Place], sizes: Sizes, depth: float, *, is_unique: bool) -> list[Any]:
    if is_unique and places and all(place.schema is places[0].schema for place in places):
        listed = _listed(draw, places[0])
        if listed is not None and len(listed) >= sizes.fewest:
            return copy.deepcopy(draw.rng.sample(listed, min(len(places), len(listed))))
    items: list[Any] = []
    seen: set[Any] | None = set() if is_unique else None
    for place in places:
        try:
            items.append(_item(draw, place, depth, seen))
        except SchemaError:
            if len(items) < sizes.fewest or sizes.contained:
                raise
            break
    return items


def _listed(draw: Drawing, place: Place) -> list[Any] | None:
    """The different values of an item, where its schema lists them."""
    plain = draw.flattener.plain(place.schema, place.at)
    if "enum" not in plain:
        return None
    return list({fingerprint(member): member for member in draw.members(plain)}.values())


def _item(draw: Drawing, place: Place, depth: float, seen: set[Any] | None) -> Any:
    """An item; one that differs from those in `seen`, and joins them, where that is a set."""
    if seen is None:
        return draw.value(place.schema, place.at, depth + 1)
    for _ in range(TRIES):
        item = draw.value(place.schema, place.at, depth + 1)
        mark = fingerprint(item)
        if mark not in seen:
            seen.add(mark)
            return item
    raise SchemaError(place.at, "no further item was found that differs from the others")
