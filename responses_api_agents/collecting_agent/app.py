"""The collector on the machines of the agents: it passes rows on, and may keep their results on its own disk."""

from nemo_gym import CollectingAgent


class RolloutCollector(CollectingAgent):
    """A collector without changes. `CollectingAgent` has its `/run`."""


if __name__ == "__main__":
    RolloutCollector.run_webserver()
