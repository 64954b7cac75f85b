"""Objects that a plain schema allows."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from responses_api_models.sample_model.json_schema.drawing import MOST_VALUES, TRIES, Drawing
from responses_api_models.sample_model.json_schema.merging import Plain
from responses_api_models.sample_model.json_schema.patterns import pattern
from responses_api_models.sample_model.json_schema.references import SchemaError, pointer_to
from responses_api_models.sample_model.json_schema.texts import WORDS

OPTIONAL_SHARE = 0.6
"""How often an optional property is there at the top; further down, less often."""
MORE_PROPERTIES = 2
"""At most this many properties are made up where the schema describes such."""
_ANY_TEXT = {"type": "string"}


def sample_object(draw: Drawing, plain: Plain, at: str, depth: float) -> dict[str, Any]:
    """An object with all that is required and some of what is optional, in the order of the schema."""
    plain = draw.flattener.closed(plain)
    making = _Making(draw, plain, at, depth)
    making.add_required()
    making.add_optional()
    making.add_unnamed()
    return making.in_order()


@dataclass
class _Making:
    """One object in the making."""

    draw: Drawing
    plain: Plain
    at: str
    depth: float

    def __post_init__(self) -> None:
        self.properties: dict[str, Any] = self.plain.get("properties", {})
        self.fewest = int(self.plain.get("minProperties", 0))
        self.most = int(self.plain.get("maxProperties", MOST_VALUES))
        self.made: dict[str, Any] = {}
        if self.fewest > min(self.most, MOST_VALUES):
            raise SchemaError(self.at, f"it needs {self.fewest} properties and may have {self.most}")

    def add_required(self) -> None:
        self.made = self._with(self.plain.get("required", ()))
        if len(self.made) > self.most:
            raise SchemaError(self.at, f"it needs {len(self.made)} properties and may have {self.most}")

    def add_optional(self) -> None:
        rng = self.draw.rng
        names = [name for name in self.properties if name not in self.made]
        rng.shuffle(names)
        share = 0.0 if self.draw.is_tight(self.depth) else OPTIONAL_SHARE / (1 + self.depth)
        left_out = []
        for name in names:
            if rng.random() < share:
                self._try_to_add(name)
            else:
                left_out.append(name)
        for name in left_out:
            if len(self.made) < self.fewest:
                self._try_to_add(name)

    def add_unnamed(self) -> None:
        """Add properties that the schema does not name: as many as it needs, a few where it describes them."""
        more = self.draw.rng.randint(0, MORE_PROPERTIES) if self._describes_more() else 0
        enough = min(self.most, max(self.fewest, len(self.made) + more))
        sources = self._name_sources() if len(self.made) < enough else []
        tries = TRIES + enough if sources else 0
        for attempt in range(tries):
            if len(self.made) >= enough:
                return
            # Names that the schema describes, unless they are too few.
            source = sources[0] if attempt < tries // 2 else self.draw.rng.choice(sources)
            name = source()
            if name not in self.properties:
                self._try_to_add(name)
        if len(self.made) < self.fewest:
            raise SchemaError(self.at, f"it needs {self.fewest} properties, and only {len(self.made)} were found")

    def in_order(self) -> dict[str, Any]:
        names = dict.fromkeys([*(name for name in self.properties if name in self.made), *self.made])
        return {name: self.made[name] for name in names}

    def _with(self, names: list[str] | tuple[str, ...]) -> dict[str, Any]:
        """What is made so far with these properties, and with those that they need beside them."""
        larger = dict(self.made)
        waiting = list(reversed(names))
        while waiting:
            name = waiting.pop()
            if name in larger:
                continue
            if not self.draw.is_valid(name, self.plain.get("propertyNames", True)):
                raise SchemaError(self.at, f"its propertyNames rule out {name!r}")
            schema = self.draw.flattener.property(self.plain, name)
            larger[name] = self.draw.value(schema, pointer_to(self.at, "properties", name), self.depth + 1)
            waiting.extend(self.plain.get("dependentRequired", {}).get(name, ()))
        return larger

    def _try_to_add(self, name: str) -> None:
        """Add a property, unless it is there, has no value or is one too many."""
        if len(self.made) >= self.most:
            return
        try:
            larger = self._with([name])
        except SchemaError:
            return
        if len(larger) <= self.most:
            self.made = larger

    def _describes_more(self) -> bool:
        additional = self.plain.get("additionalProperties")
        is_described = "patternProperties" in self.plain or (isinstance(additional, dict) and bool(additional))
        return is_described and not self.draw.is_tight(self.depth)

    def _name_sources(self) -> list[Callable[[], str]]:
        """Ways to make up a name, the one that the schema describes best first."""
        rng = self.draw.rng
        expressions = list(self.plain.get("patternProperties", ()))
        sources: list[Callable[[], str]] = []
        if expressions:
            sources.append(lambda: pattern(rng.choice(expressions)).sample(rng))
        if self.plain.get("additionalProperties") is False:
            return sources
        if "propertyNames" in self.plain:
            text = self.draw.flattener.both([self.plain["propertyNames"], _ANY_TEXT])
            where = pointer_to(self.at, "propertyNames")
            sources.append(lambda: str(self.draw.value(text, where, self.depth + 1)))
        else:
            sources.append(lambda: f"{rng.choice(WORDS)}_{''.join(rng.choices(string.ascii_lowercase, k=2))}")
        return sources
