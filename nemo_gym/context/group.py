"""The group of rollouts that are verified together. Every call for such a rollout names the group in a header."""

from __future__ import annotations

from typing import NamedTuple, Self

from pydantic import BaseModel, Field

from nemo_gym.jsonl import JsonObject
from nemo_gym.schemas.row import ROLLOUT_ID_PATTERN

GROUP_HEADER = "x-nemo-gym-group"
"""Header with a rollout's place in its group: `<group>;<size>;<member>`, members counted from 0."""
GROUP_MEMBERS_PATH = "/groups/members"
"""Route of a resources server that receives a `GroupMembersRequest`.

The path has two segments, so that a model cannot call the route as a tool.
"""
LEAST_GROUP = 2
"""The smallest group: a single rollout cannot be compared with others."""


class GroupPlace(NamedTuple):
    """A rollout's place in its group."""

    group: str
    size: int
    member: int

    @property
    def header(self) -> str:
        """This place as a value of `GROUP_HEADER`."""
        return f"{self.group};{self.size};{self.member}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the value of `GROUP_HEADER`. Raise `ValueError` if it is invalid."""
        group, _, numbers = text.partition(";")
        size, _, member = numbers.partition(";")
        if ROLLOUT_ID_PATTERN.fullmatch(group) and _is_number(size) and _is_number(member):
            place = cls(group, int(size), int(member))
            if place.size >= LEAST_GROUP and place.member < place.size:
                return place
        raise ValueError(
            f"{GROUP_HEADER}: '{text}' is not <group>;<size>;<member>, with letters, digits, '.', '_' and '-' in the "
            f"group, a size from {LEAST_GROUP} and members from 0 to size - 1"
        )


class GroupMembersRequest(BaseModel):
    """A message about a group's members that will not arrive or already have a result. Keys are member numbers."""

    group: str
    absent: dict[int, str] = Field(default_factory=dict)
    """Members that will not arrive, with the reasons."""
    present: dict[int, JsonObject] = Field(default_factory=dict)
    """The verify requests of members that already have a result. The other members are compared with these members."""
    over: bool = False
    """Whether no further members will arrive, so that the server can delete the group."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
