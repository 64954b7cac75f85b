"""A game in which the night watch of a museum returns misplaced exhibits to their rooms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

ROOMS = (
    "foyer", "gallery", "library", "cellar", "tower", "orangery", "chapel", "armoury", "map room", "print room",
)  # fmt: skip
EXHIBITS = ("vase", "globe", "mask", "lute", "clock", "scroll", "helmet", "fan", "sextant", "tapestry")
KEY = "key"
ROOM_COUNT = 6
EXHIBIT_COUNT = 3
HANDS = 2


class Exhibit(NamedTuple):
    """An exhibit with its current room and the room where it belongs."""

    name: str
    lies_in: str
    belongs_in: str


class Move(NamedTuple):
    """One action of the night watch: `go`, `take` or `put`, with its target."""

    tool: str
    target: str


@dataclass(frozen=True)
class Museum:
    """The task of one round: rooms, doors between them, exhibits, and a key for the locked room."""

    rooms: tuple[str, ...]
    doors: frozenset[frozenset[str]]
    locked_room: str
    key_room: str
    exhibits: tuple[Exhibit, ...]

    @property
    def start(self) -> str:
        """The room where the round begins."""
        return self.rooms[0]

    @property
    def battery(self) -> int:
        """The number of doors that the lamp lasts for. It is just enough to return one exhibit after another."""
        return sum(move.tool == "go" for move in plan(self))

    def next_to(self, room: str) -> list[str]:
        """Return the rooms that share a door with `room`."""
        return [other for other in self.rooms if frozenset((room, other)) in self.doors]


def museum_of(seed: int) -> Museum:
    """Create the museum for a seed. The same seed gives the same museum, and every round can be completed."""
    rng = Random(f"night round {seed}")
    rooms = rng.sample(ROOMS, ROOM_COUNT)
    # The doors form a tree, so every room is reachable. The last room is a leaf, so locking it blocks no other room.
    doors = {frozenset((room, rng.choice(rooms[:number]))) for number, room in enumerate(rooms) if number}
    doors.add(frozenset(rng.sample(rooms[:-1], 2)))
    names = rng.sample(EXHIBITS, EXHIBIT_COUNT)
    places = [rng.sample(rooms, 2) for _ in names]
    # Put one exhibit or its destination into the locked room, so that the key is needed.
    places[rng.randrange(len(places))][rng.randrange(2)] = rooms[-1]
    exhibits = [
        Exhibit(name, lies_in, belongs_in if belongs_in != lies_in else rooms[0])
        for name, (lies_in, belongs_in) in zip(names, places, strict=True)
    ]
    return Museum(tuple(rooms), frozenset(doors), rooms[-1], rng.choice(rooms[1:-1]), tuple(exhibits))


@dataclass
class Round:
    """The state of a round of the museum game. Every action returns a description of its result."""

    museum: Museum
    room: str = ""
    carried: list[str] = field(default_factory=list)
    has_key: bool = False
    lies_in: dict[str, str] = field(default_factory=dict)
    """The room of each exhibit that is not carried, by the exhibit's name."""
    battery: int = 0

    def __post_init__(self) -> None:
        self.room = self.museum.start
        self.lies_in = {exhibit.name: exhibit.lies_in for exhibit in self.museum.exhibits}
        self.battery = self.museum.battery

    @property
    def share_in_place(self) -> float:
        """The share of exhibits in their place, from 0 to 1."""
        return sum(self._is_in_place(each) for each in self.museum.exhibits) / len(self.museum.exhibits)

    @property
    def is_over(self) -> bool:
        """Whether every exhibit is in its place, or the lamp is out and nothing is carried."""
        return self.share_in_place == 1 or (self.battery == 0 and not self.carried)

    def look(self) -> str:
        """Describe the room and the carried things."""
        here = [name for name, room in self.lies_in.items() if room == self.room]
        here += [KEY] if self.room == self.museum.key_room and not self.has_key else []
        held = self.carried + ([KEY] if self.has_key else [])
        return (
            f"You are in the {self.room}. Doors lead to: {', '.join(self.museum.next_to(self.room))}. "
            f"Here: {', '.join(here) or 'nothing'}. You carry: {', '.join(held) or 'nothing'}. "
            f"The lamp lasts for {self.battery} more doors."
        )

    def go(self, room: str) -> str:
        if room not in self.museum.next_to(self.room):
            return f"No door leads from here to {room[:40]!r}. {self.look()}"
        if room == self.museum.locked_room and not self.has_key:
            return f"The {room} is locked, and you do not have the key."
        if self.battery == 0:
            return "The lamp has gone out: you cannot find the door. Things can still be put down."
        self.room, self.battery = room, self.battery - 1
        return self.look()

    def take(self, thing: str) -> str:
        if thing == KEY and self.room == self.museum.key_room and not self.has_key:
            self.has_key = True
            return f"You take the key; it opens the {self.museum.locked_room}."
        if self.lies_in.get(thing) != self.room:
            return f"There is no {thing[:40]!r} here. {self.look()}"
        if len(self.carried) == HANDS:
            return f"You have two hands, and carry {' and '.join(self.carried)}. Put something down first."
        del self.lies_in[thing]
        self.carried.append(thing)
        return f"You take the {thing}."

    def put(self, thing: str) -> str:
        if thing not in self.carried:
            return f"You do not carry a {thing[:40]!r}."
        self.carried.remove(thing)
        self.lies_in[thing] = self.room
        is_right = any(each.name == thing and self._is_in_place(each) for each in self.museum.exhibits)
        return f"You put the {thing} down{': it is in its place' if is_right else ', but it does not belong here'}."

    def _is_in_place(self, exhibit: Exhibit) -> bool:
        return self.lies_in.get(exhibit.name) == exhibit.belongs_in


def briefing(museum: Museum) -> str:
    """Return the text that describes a museum to the model at the start of a round."""
    doors = sorted(" - ".join(sorted(door)) for door in museum.doors)
    places = [f"the {name} lies in the {here}, its place is the {there}" for name, here, there in museum.exhibits]
    return (
        f"Doors: {'; '.join(doors)}. The {museum.locked_room} is locked; the key is in the {museum.key_room}. "
        f"Exhibits: {'; '.join(places)}. You carry {HANDS} exhibits at a time, and the key beside them."
    )


def plan(museum: Museum) -> list[Move]:
    """Return the moves of a perfect round: one exhibit at a time, and the key as soon as it is needed."""
    return list(_moves(museum))


def _moves(museum: Museum) -> Iterator[Move]:
    room, has_key = museum.start, False
    for exhibit in museum.exhibits:
        if museum.locked_room in (exhibit.lies_in, exhibit.belongs_in) and not has_key:
            yield from _walk(museum, room, museum.key_room)
            yield Move("take", KEY)
            room, has_key = museum.key_room, True
        yield from _walk(museum, room, exhibit.lies_in)
        yield Move("take", exhibit.name)
        yield from _walk(museum, exhibit.lies_in, exhibit.belongs_in)
        yield Move("put", exhibit.name)
        room = exhibit.belongs_in


def _walk(museum: Museum, start: str, end: str) -> Iterable[Move]:
    """Return the moves of the shortest path. It never crosses the locked room, which has only one door."""
    came_from: dict[str, str] = {start: start}
    open_rooms = deque([start])
    while end not in came_from:
        room = open_rooms.popleft()
        for following in museum.next_to(room):
            if following not in came_from:
                came_from[following] = room
                open_rooms.append(following)
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return [Move("go", room) for room in reversed(path[:-1])]
