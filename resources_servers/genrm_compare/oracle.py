"""The row's good answer. It wins, because `ng env check` compares it with an empty answer."""

from nemo_gym.jsonl import JsonObject
from resources_servers.genrm_compare.aggregation import bradley_terry, expected_wins


def solve(row: JsonObject) -> list[str]:
    return [row["good_answer"]]


def full_reward(row: JsonObject) -> float:
    """Return the reward of an answer that is much better than the only other one."""
    return expected_wins(bradley_terry({(0, 1): 1.0}))[0]
