"""The collector: a server that passes rows on to the agents. It can keep the results on its own disk."""

from nemo_gym import CollectingAgent


class RolloutCollector(CollectingAgent):
    """A collector that adds nothing to `CollectingAgent`, which defines `/run`."""


if __name__ == "__main__":
    RolloutCollector.run_webserver()
