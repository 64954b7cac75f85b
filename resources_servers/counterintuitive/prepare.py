r"""Generate rows: tasks whose rules go against habit, and controls with the usual rules.

python resources_servers/counterintuitive/prepare.py --count 500 --output <rows.jsonl>
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

from nemo_gym import DataError, Split, run_prepare, split_rows
from nemo_gym.jsonl import write_rows
from resources_servers.counterintuitive.drafts import Draft, Scenario
from resources_servers.counterintuitive.grading import matches
from resources_servers.counterintuitive.kinds import KINDS

CONTROL = "control"
MOST_DRAWS = 1_000
"""Maximum number of drafts for one row. Most drafts are usable, so a scenario that needs more has a bug."""


def prepare(
    output: Path,
    count: int = 500,
    seed: int = 0,
    *,
    control_share: float = 0.2,
    subset: Sequence[str] = (),
    split: Split | None = None,
) -> Path:
    """Write `count` rows, alternating between the kinds, and return their path.

    control_share: the share of rows with the usual rules, from 0 to 1
    subset: only rows of this subset and their controls; repeat the flag for several
    split: only rows of this split; the two splits have no prompt in common

    Raises `DataError` for an invalid share or an unknown subset; then nothing is written.
    """
    if not 0 <= control_share <= 1:
        raise DataError(f"control_share: {control_share} is not between 0 and 1.")
    unknown = [name for name in subset if name not in KINDS]
    if unknown:
        raise DataError(f"subset: '{unknown[0]}' does not exist. The subsets are: {', '.join(KINDS)}.")
    drawn = generated_rows(random.Random(f"counterintuitive {seed}"), subset or list(KINDS), control_share)
    write_rows(output, split_rows(drawn, split, count, key=itemgetter("responses_create_params")))
    return output


def generated_rows(rng: random.Random, kinds: Sequence[str], control_share: float) -> Iterator[dict[str, Any]]:
    """Yield an endless stream of rows, alternating between the kinds."""
    for kind in cycle(kinds):
        scenario, is_twisted = rng.choice(KINDS[kind]), rng.random() >= control_share
        draft = _drawn(rng, scenario, is_twisted=is_twisted)
        row = {
            "responses_create_params": {"input": draft.messages},
            "subset": kind if is_twisted else CONTROL,
            "scenario": scenario.__name__,
            "form": draft.form,
            "expected_answer": draft.expected,
            "habitual_answer": draft.habitual,
        }
        yield {**row, "documents": draft.documents} if draft.documents else row


def _drawn(rng: random.Random, scenario: Scenario, *, is_twisted: bool) -> Draft:
    """Return the first draft whose expected and habitual answers differ or, for a control row, are equal."""
    for _ in range(MOST_DRAWS):
        draft = scenario(rng, is_twisted)
        if matches(draft.form, draft.expected, draft.habitual) != is_twisted:
            return draft
    raise RuntimeError(
        f"scenario '{scenario.__name__}' did not produce a {'twisted row' if is_twisted else 'control'}"
    )


if __name__ == "__main__":
    run_prepare(prepare)
