"""The museum game as an Aviary environment, and a dataset with a round of the game for every index."""

from aviary.core import Environment, Message, Messages, TaskDataset, Tool, ToolRequestMessage

from resources_servers.aviary.museum import Museum, Round, briefing, museum_of


class NightRound(Environment[Round]):
    """A round of the museum game.

    Putting an exhibit in its place earns an equal share of 1. Removing it costs this share.
    """

    def __init__(self, museum: Museum) -> None:
        self.museum = museum
        self.state = Round(museum)
        self.tools = [Tool.from_function(each) for each in (self.look, self.go, self.take, self.put)]

    async def reset(self) -> tuple[Messages, list[Tool]]:
        self.state = Round(self.museum)
        return [Message(content=f"{briefing(self.museum)}\n{self.state.look()}")], self.tools

    async def step(self, action: Message) -> tuple[Messages, float, bool, bool]:
        """Run the calls of a turn sequentially."""
        if not isinstance(action, ToolRequestMessage):
            return self.default_no_tool_calls_response
        share_before = self.state.share_in_place
        results = await self.exec_tool_calls(action, concurrency=False)
        return list(results), self.state.share_in_place - share_before, self.state.is_over, False

    async def look(self) -> str:
        """Look round: the doors of this room, what lies here, and what you carry."""
        return self.state.look()

    async def go(self, room: str) -> str:
        """Go through a door into the next room.

        Args:
            room: The room behind the door.
        """
        return self.state.go(room)

    async def take(self, thing: str) -> str:
        """Take something that lies in this room.

        Args:
            thing: The exhibit, or the key.
        """
        return self.state.take(thing)

    async def put(self, thing: str) -> str:
        """Put an exhibit that you carry down in this room.

        Args:
            thing: The exhibit.
        """
        return self.state.put(thing)


class NightRounds(TaskDataset[NightRound]):
    """An endless dataset with one round per index."""

    def get_new_env_by_idx(self, idx: int) -> NightRound:
        """Return the round whose museum has the seed `idx`."""
        return NightRound(museum_of(idx))
