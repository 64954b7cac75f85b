"""What all items of the wire have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class WireModel(BaseModel):
    """Keeps the fields it does not know, so that a round trip loses nothing."""

    model_config = ConfigDict(extra="allow")


class TaggedModel(WireModel):
    """A wire model told apart by fields that have a default, such as `type`.

    Such a field counts as set even when its default was taken: calls are sent with
    `model_dump(exclude_unset=True)`, and an item without its `type` could not be read back.
    """

    tags: ClassVar[tuple[str, ...]] = ("type",)

    def model_post_init(self, context: Any, /) -> None:
        self.__pydantic_fields_set__.update(self.tags)
