"""The environment server of release 0.7 that runs each task as one turn of an agent."""

from nemo_gym import SingleAgentTurn


class SingleAgentTurnServer(SingleAgentTurn):
    """An environment server that adds nothing to `SingleAgentTurn`, which defines `/run`."""


if __name__ == "__main__":
    SingleAgentTurnServer.run_webserver()
