"""Stop a run whose model calls all fail in the same way, such as with a wrong key or a wrong model name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nemo_gym.errors import ModelFailed
from nemo_gym.rollouts.outcome import Outcome, Record, Summary, shape_of
from nemo_gym.rollouts.recording import OnRecord

IDENTICAL_FAILURES = 20
LONGEST_REASON = 300


class EarlyStop:
    """Counts identical failures of the model until a rollout is scored. Then the run is never stopped."""

    def __init__(self, stop: Callable[[str], object]) -> None:
        """Initialise the counts. `stop` is called at most once, with the reason."""
        self._stop = stop
        self._is_over = False
        self._failures = Counter[str]()

    def watching(self, on_record: OnRecord) -> OnRecord:
        """Return `on_record`, extended so that each ended rollout is counted."""

        def take(record: Record, summary: Summary) -> None:
            on_record(record, summary)
            self._count(record)

        return take

    def _count(self, record: Record) -> None:
        """Count an ended rollout. A failure counts if neither a retry nor another row is likely to succeed."""
        if self._is_over:
            return
        self._is_over = record.outcome is Outcome.SCORED
        if record.cause != ModelFailed.failure_class or record.may_retry:
            return
        message = " ".join((record.row.failure_message or "").split())
        shape = shape_of(message)
        self._failures[shape] += 1
        if self._failures[shape] == IDENTICAL_FAILURES:
            self._is_over = True
            self._stop(
                f"early_stop: the first {IDENTICAL_FAILURES} model calls failed in the same way, and no rollout was "
                f"scored: {message[:LONGEST_REASON]}. Correct the endpoint, the key or the model name, or pass "
                "--no-early-stop"
            )
