"""Detect a default model that a config file includes for itself, but that servers of unrelated files also use."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym.config.checks import references_of
from nemo_gym.config.models import ServerConfig
from nemo_gym.config.settings import SAMPLE_MODEL
from nemo_gym.config.wording import counted


def notes_of_defaults(servers: Mapping[str, ServerConfig], surroundings: Mapping[str, frozenset[str]]) -> list[str]:
    """Return a note for each model server that uses `sample_model` and is called by servers of unrelated files.

    `surroundings` maps each included file to its related files (see `Sources.surroundings`).
    """
    notes = []
    for model in servers.values():
        file = model.origins[""].file
        if model.implementation != SAMPLE_MODEL or file not in surroundings:
            continue
        users = [
            server.name
            for server in servers.values()
            if model.name in references_of(server) and server.origins[""].file not in surroundings[file]
        ]
        if users:
            others = f" and {counted(len(users) - 1, 'other server')}" if len(users) > 1 else ""
            use = "use" if others else "uses"
            notes.append(
                f"no model given: {users[0]}{others} {use} the random policy of {file}, which another file includes "
                "as its default. Add a model, for example with --model-type."
            )
    return notes
