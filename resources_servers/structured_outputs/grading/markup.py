"""Parse XML into JSON values with the help of the schema, because XML itself has neither lists nor numbers.

An element with children or attributes is an object, and any other element is a text. A list is written as repeated
elements with the property's name, or as one element of this name that contains the items. Attributes are properties.
Their names begin with `@` if the schema names them so. The text of an element with attributes is the property `#text`.
The name of the root is ignored, unless the schema expects an object with one property of this name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from resources_servers.structured_outputs.grading.described import Described
from resources_servers.structured_outputs.grading.formats import DEEPEST, MOST_VALUES, Unreadable


@dataclass
class Element:
    """An XML element. `text` is its character data, without that of its children."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""


def read_xml(text: str, described: Described, *, coerces_types: bool) -> list[Any]:
    """Return the possible values of an XML text, the most likely first. Raises `Unreadable` if it is invalid.

    With `coerces_types`, strings become the numbers, booleans or nulls that the schema expects. Without it, all
    leaves are strings.
    """
    root = parse_xml(text)
    reader = _Reader(coerces_types)
    content = reader.value(root, described)
    if list(described.properties) != [root.tag]:
        return [content]
    return [{root.tag: reader.property(root.tag, [root], described)}, content]


def parse_xml(text: str) -> Element:
    """Parse XML and return the root element. DTDs are rejected, because their entities can expand enormously."""
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.StartDoctypeDeclHandler = builder.refuse_doctype
    try:
        parser.Parse(text.strip().encode(), True)
    except expat.ExpatError as error:
        raise Unreadable(f"not XML: {error}") from error
    return builder.root


class _Builder:
    """A builder of elements from the parser's events, with limits on size and depth."""

    def __init__(self) -> None:
        self._document = Element("", {})
        self._open = [self._document]
        self._count = 0

    @property
    def root(self) -> Element:
        return self._document.children[0]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1 + len(attributes)
        if self._count > MOST_VALUES:
            raise Unreadable(f"the document has more than {MOST_VALUES} values")
        if len(self._open) > DEEPEST:
            raise Unreadable(f"the document is nested more than {DEEPEST} levels deep")
        plain = {name: value for name, value in attributes.items() if name.split(":")[0] != "xmlns"}
        element = Element(tag, plain)
        self._open[-1].children.append(element)
        self._open.append(element)

    def end(self, _tag: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].text += text

    def refuse_doctype(self, *_: Any) -> None:
        raise Unreadable("a DTD (<!DOCTYPE …>) is not allowed")


@dataclass(frozen=True)
class _Reader:
    coerces_types: bool

    def value(self, element: Element, described: Described) -> Any:
        text = element.text.strip()
        types = described.types
        if "array" in types and self._holds_items(element, types, text):
            return [self.value(child, described.items) for child in element.children]
        if not element.children and not element.attributes:
            if text == "" and "object" in types and not types & {"string", "null"}:
                return {}
            return self._leaf(text, described)
        found: dict[str, Any] = {}
        for name, attribute in element.attributes.items():
            known_as = f"@{name}" if f"@{name}" in described.properties else name
            found[known_as] = self._leaf(attribute, described.at(known_as))
        groups: dict[str, list[Element]] = {}
        for child in element.children:
            groups.setdefault(child.tag, []).append(child)
        for tag, group in groups.items():
            if tag in found:
                raise Unreadable(f"the property {tag!r:.80} is both an attribute and an element of <{element.tag}>")
            found[tag] = self.property(tag, group, described)
        if text:
            found["#text"] = self._leaf(text, described.at("#text"))
        return found

    def property(self, tag: str, group: list[Element], described: Described) -> Any:
        """Return the value of a property, given all elements with its name."""
        wanted = described.at(tag)
        if "array" in wanted.types:
            if len(group) == 1 and self._is_wrapper(group[0], wanted.items):
                return [self.value(child, wanted.items) for child in group[0].children]
            return [self.value(element, wanted.items) for element in group]
        values = [self.value(element, wanted) for element in group]
        return values[0] if len(values) == 1 else values

    def _leaf(self, text: str, described: Described) -> Any:
        return described.value_of(text) if self.coerces_types else text

    def _is_wrapper(self, element: Element, items: Described) -> bool:
        if element.attributes or element.text.strip():
            return False
        tags = {child.tag for child in element.children}
        if len(tags) > 1:
            return False
        return not (tags & items.properties.keys()) and (bool(tags) or "string" not in items.types)

    def _holds_items(self, element: Element, types: set[str], text: str) -> bool:
        return not text and not element.attributes and (types == {"array"} or bool(element.children))
