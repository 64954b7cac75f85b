"""The effects of a rollout's calls on the company, compared with the effects that the wishes should have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from nemo_gym import InvalidTask, ToolError
from resources_servers.workplace_assistant.app import GroundTruthCall
from resources_servers.workplace_assistant.database import Company, Database
from resources_servers.workplace_assistant.effects import Effects, effects_on
from resources_servers.workplace_assistant.replay import UnreadableCall, try_call


def effects_of_each(company: Company, wishes: Sequence[Sequence[GroundTruthCall]]) -> list[Effects]:
    """Return each wish's effects that later wishes do not undo. `wishes` contains the calls of each wish.

    Raises `InvalidTask` if a call is invalid or rejected, or if nothing remains of a wish's effects.
    """
    database = Database(company)
    after: list[Effects] = [Counter()]
    for number, calls in enumerate(wishes):
        for call in calls:
            try:
                try_call(database, call.name, call.arguments)
            except (UnreadableCall, ToolError) as error:
                raise InvalidTask(f"wishes[{number}].calls: {error}. Fix the row.") from error
        after.append(effects_on(database))
    lasting = [(now - before) & after[-1] for before, now in pairwise(after)]
    for number, effects in enumerate(lasting):
        if wishes[number] and not effects:
            raise InvalidTask(f"wishes[{number}].calls: the calls have no lasting effect. Fix the row.")
    return lasting


def which_are_done(actual: Effects, wishes: Iterable[Effects]) -> list[bool]:
    """Return whether all effects of each wish occurred. An actual effect counts for only one wish."""
    left, done = actual, list[bool]()
    for effects in wishes:
        done.append(effects <= left)
        if done[-1]:
            left = left - effects
    return done


def damage(actual: Effects, expected: Effects) -> Effects:
    """Return the effects that no wish asks for.

    A wrong value in a field that a wish changes is not damage, because the unfulfilled wish already costs reward.
    """
    changed = {(effect.table, effect.row_id, effect.column) for effect in expected if effect.column}
    return Counter(effect for effect in (actual - expected).elements() if effect[:3] not in changed)
