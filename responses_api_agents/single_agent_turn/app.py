"""The environment server of release 0.7 for one turn of an agent per task."""

from nemo_gym import SingleAgentTurn


class SingleAgentTurnServer(SingleAgentTurn):
    """An environment server without changes. `SingleAgentTurn` has its `/run`."""


if __name__ == "__main__":
    SingleAgentTurnServer.run_webserver()
