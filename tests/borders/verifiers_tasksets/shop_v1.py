"""Tools in a server for each rollout, which share a state with the reward function."""

import verifiers.v1 as vf

__all__ = ["ShopTaskset"]


class Cart(vf.State):
    bought: tuple[str, ...] = ()


class Shop(vf.Toolset[vf.ToolsetConfig, Cart]):
    TOOL_PREFIX = None

    @vf.tool
    async def price(self, fruit: str) -> str:
        """Return the price of a fruit."""
        return {"apple": "3", "pear": "5"}[fruit]

    @vf.tool
    async def buy(self, fruit: str) -> str:
        """Buy a fruit."""
        self.state.bought = (*self.state.bought, fruit)
        return "bought"


class ShopTask(vf.Task[vf.TaskData, Cart]):
    @classmethod
    def toolsets(cls, config):
        return [Shop(vf.ToolsetConfig())]

    @vf.reward
    async def cheapest(self, trace):
        return float(trace.state.bought == ("apple",))


class ShopTaskset(vf.Taskset[ShopTask]):
    def load(self):
        yield ShopTask(vf.TaskData(prompt="Buy the cheaper of apple and pear."), self.config.task)


if __name__ == "__main__":
    Shop.run()
