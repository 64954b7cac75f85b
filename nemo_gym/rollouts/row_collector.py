"""The collector server that a run sends its rows to, instead of to their agents."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Self

from nemo_gym.calls.address_book import AddressBook
from nemo_gym.calls.task_rules import TaskRules
from nemo_gym.config.settings import AGENT_TIER
from nemo_gym.config.suggestions import did_you_mean_or_all
from nemo_gym.errors import UsageError
from nemo_gym.rollouts.job import CollectionSettings, RunFiles
from nemo_gym.rollouts.subject import ServerBlock
from nemo_gym.schemas.rollout import SHARD_HEADER
from nemo_gym.schemas.row import SHARD_KEY, Row

logger = logging.getLogger(__name__)

IMPLEMENTATION = "collecting_agent"
"""The implementation name of collector servers, which is also the name of their folder."""
CONFIG = f"responses_api_agents/{IMPLEMENTATION}/configs/{IMPLEMENTATION}.yaml"
NAME_CHARACTERS = 80
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class RowCollector:
    """The collector server of a run. If the results are sharded, a header of every row names the shard."""

    def __init__(self, server: str, shard: str | None = None) -> None:
        self.server = server
        self.headers = {} if shard is None else {SHARD_HEADER: shard}
        """The headers to send with every row."""
        self._failing: set[str] = set()

    @classmethod
    def of(cls, settings: CollectionSettings, files: RunFiles, run_id: str) -> Self | None:
        """Return the collector that the settings name, or None if no collector is set."""
        if settings.collector is None:
            return None
        name = _NOT_IN_NAMES.sub("_", files.results.stem)[:NAME_CHARACTERS].lstrip("._-")
        return cls(settings.collector, f"{name or 'rollouts'}.{run_id[:8]}" if settings.sharded else None)

    def take_note(self, result: Row) -> None:
        """If the collector could not store this result, log a warning. Warn only once about each collector machine."""
        shard = result.fields.get(SHARD_KEY)
        if not isinstance(shard, dict) or "problem" not in shard:
            return
        machine = str(shard.get("machine"))
        if machine not in self._failing:
            self._failing.add(machine)
            logger.warning(
                "%s on %s cannot keep its results: %s They are written in full to the collection's output instead.",
                self.server, machine, shard["problem"],
            )  # fmt: skip


def check_collector(
    settings: CollectionSettings, blocks: Iterable[ServerBlock], book: AddressBook, rules: TaskRules
) -> None:
    """Raise `UsageError` if the collector that the settings name does not exist, or cannot store the results."""
    name = settings.collector
    if name is None:
        if settings.sharded:
            raise UsageError(f"sharded: name the server that keeps the results: --collector NAME (see {CONFIG}).")
        return
    agents = {block.name: block for block in blocks if block.tier == AGENT_TIER}
    collectors = [each.name for each in agents.values() if each.implementation == IMPLEMENTATION]
    if name not in collectors:
        problem = "an agent, not a collector" if name in agents else "not a server of this run"
        hint = did_you_mean_or_all(name, collectors, "collectors", if_none=f"Start the run with --config {CONFIG}.")
        raise UsageError(f"collector: '{name}' is {problem}.{hint}")
    if not settings.sharded:
        return
    if not agents[name].settings.get("shard_dir"):
        raise UsageError(
            f"sharded: {name} does not set shard_dir, the folder for its results. Add shard_dir to the block of "
            f"{name}."
        )
    if rules.grouped:
        raise UsageError(
            "sharded: rollouts that are verified together are compared with each other, which needs their full "
            "results in the output. Leave out --sharded."
        )
    if book.capture_dir() is not None or book.token_capture.enabled:
        raise UsageError(
            "sharded: recorded model calls and tokens are added to the full results, which must therefore be in the "
            "output. Leave out --sharded, or observability_enabled and token_id_capture."
        )
