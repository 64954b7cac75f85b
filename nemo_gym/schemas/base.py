"""Base classes of all models on the wire."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class WireModel(BaseModel):
    """A model that keeps unknown fields, so that a round trip loses nothing."""

    model_config = ConfigDict(extra="allow")


class TaggedModel(WireModel):
    """A wire model identified by fields with a default, such as `type`.

    These fields always count as set: calls are sent with `model_dump(exclude_unset=True)`, and an item without its
    `type` could not be parsed.
    """

    tags: ClassVar[tuple[str, ...]] = ("type",)

    def model_post_init(self, context: object, /) -> None:
        self.__pydantic_fields_set__.update(self.tags)
