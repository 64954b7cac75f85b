"""The policies that a trainer sets one after another, and the choice of one for each rollout."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from nemo_gym.calls.client import ServerClient
from nemo_gym.context.policy import Policy
from nemo_gym.errors import RolloutCancelled, UsageError
from nemo_gym.jsonl import JsonObject, loads_exact
from nemo_gym.rollouts.outcome import Record
from nemo_gym.rollouts.recorded_tokens import RecordedTokens
from nemo_gym.rollouts.runner import Runner, failed
from nemo_gym.schemas.row import POLICY_KEYS, Row, TaskKey
from nemo_gym.training.trajectory import POLICY_MOMENTS_KEY

CONFIGURED = Policy()


@dataclass
class Source:
    """The weights behind a policy, with their version and the number of rollouts that they sample now."""

    version: int
    sampling: int = 0
    """The number of running rollouts that use these weights."""
    moments: list[tuple[float, int]] = field(default_factory=list)
    """When each version began, in seconds since the epoch."""

    def __post_init__(self) -> None:
        self.begin(self.version)

    def begin(self, version: int) -> None:
        self.version = version
        self.moments.append((round(time.time(), 6), version))


class Policies:
    """The current policies, one for each address, and the earlier policies that still sample rollouts."""

    def __init__(self) -> None:
        self.version = 0
        self._sources = {CONFIGURED: Source(0)}
        self._current = deque([CONFIGURED])
        """The current policies. The one that was chosen last is at the end."""
        self._listeners: set[Callable[[int], object]] = set()

    def changed(self, urls: str | Sequence[str] | None, model: str | None, api_key: str | None) -> list[Policy]:
        """Return one policy for each address in `urls`, or for each current address if `urls` is None.

        Raise `UsageError` if `urls` is empty or a value is invalid.
        """
        if urls is None:
            bases = [policy.fields for policy in self._current]
        else:
            bases = [{"policy_base_url": url} for url in ([urls] if isinstance(urls, str) else urls)]
        if not bases:
            raise UsageError("set_policy: urls is empty. Pass at least one address, or None to keep the current ones.")
        named = {"policy_model_name": model, "policy_api_key": api_key}
        given = {key: value for key, value in named.items() if value is not None}
        try:
            return [Policy.of_fields({**base, **given}) or CONFIGURED for base in bases]
        except ValueError as error:
            raise UsageError(f"set_policy: {error}") from None

    def replace(self, policies: Sequence[Policy] | None, version: int | None) -> None:
        """Begin a new version of the policy.

        If `policies` is None, the weights of all current policies have been replaced in place. The same applies to a
        current policy that is also in `policies`.
        """
        version = self.version + 1 if version is None else version
        if version <= self.version:
            raise UsageError(f"version={version}: it must be greater than {self.version}, the current version.")
        self.version = version
        self._current = deque(self._current if policies is None else dict.fromkeys(policies))
        for policy in self._current:
            if (source := self._sources.setdefault(policy, Source(version))).version != version:
                source.begin(version)
        self._forget_unused()
        for listener in list(self._listeners):
            listener(version)

    @contextmanager
    def calling(self, listener: Callable[[int], object]) -> Iterator[None]:
        """Call a function with each new version that begins within the block."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    @contextmanager
    def sampling(self, row: Row) -> Iterator[tuple[Row, Source]]:
        """Yield the row with the least busy policy added, and its source. If the row has a policy, keep that one."""
        if any(row.fields.get(key) is not None for key in POLICY_KEYS):
            yield row, Source(self.version)
            return
        policy = min(self._current, key=lambda each: self._sources[each].sampling)
        # Move the policy to the end, so that equally busy policies take turns.
        self._current.remove(policy)
        self._current.append(policy)
        source = self._sources[policy]
        source.sampling += 1
        try:
            yield row.with_fields(policy.fields), source
        finally:
            source.sampling -= 1
            if policy not in self._current:
                self._forget_unused()

    def _forget_unused(self) -> None:
        known, current = self._sources.items(), set(self._current)
        self._sources = {policy: source for policy, source in known if source.sampling or policy in current}


async def awaited(attempt: asyncio.Task[Record]) -> Record | None:
    """Wait for an attempt. Return None if only the attempt was cancelled, and not the task that waits for it."""
    try:
        return await attempt
    except asyncio.CancelledError:
        if (own := asyncio.current_task()) is not None and own.cancelling():
            raise
        return None


def _versions(begin: int, end: int, moments: list[tuple[float, int]]) -> JsonObject:
    return {"policy_version": begin, "policy_version_at_end": end, POLICY_MOMENTS_KEY: moments}


class PolicyRunner(Runner):
    """A runner that gives each rollout one of the trainer's policies, and records the policy's version in the row."""

    def __init__(
        self,
        client: ServerClient,
        policies: Policies,
        *,
        rollout_timeout_s: float,
        tokens: RecordedTokens | None,
        max_staleness: float = math.inf,
    ) -> None:
        """Cancel an attempt once the newest policy is more than `max_staleness` versions ahead of it."""
        # Parse the results in full, because trainers read the token ids.
        super().__init__(client, rollout_timeout_s=rollout_timeout_s, loads=loads_exact, tokens=tokens)
        self._policies = policies
        self._max_staleness = max_staleness
        self._began: dict[TaskKey, int] = {}
        """The version with which the latest attempt of each running rollout began."""

    def cancelled(self, row: Row, why: str) -> Record:
        """Return the record of a rollout that was cancelled between or during its attempts."""
        newest = self._policies.version
        record = failed(row.without_policy(), RolloutCancelled(why))
        record.row.fields.update(_versions(self._began.pop(row.key, newest), newest, []))
        return record

    async def run(self, row: Row) -> Record:
        """Run one attempt of a rollout to its end, with the row's policy or else the least busy current one."""
        with self._policies.sampling(row) as (sent, source):
            version, known = source.version, len(source.moments) - 1
            self._began[row.key] = version
            is_bounded = math.isfinite(self._max_staleness)
            record = await (self._until_stale(sent, version) if is_bounded else super().run(sent))
            record.row.fields.update(_versions(version, source.version, source.moments[known:]))
        del self._began[row.key]
        return record

    async def _until_stale(self, sent: Row, version: int) -> Record:
        """Run an attempt, and cancel it once it is too stale. It then counts as failed."""
        attempt = asyncio.create_task(super().run(sent))
        with self._policies.calling(lambda newest: newest - version > self._max_staleness and attempt.cancel()):
            if (record := await awaited(attempt)) is not None:
                return record
        newest = self._policies.version
        reason = f"too stale: version {version} of the policy began it, and version {newest} is newest"
        return failed(sent.without_policy(), RolloutCancelled(reason))
