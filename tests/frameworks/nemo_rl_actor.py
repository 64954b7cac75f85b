"""A program that calls us as NeMo RL does: start servers, run concurrent batches, turn results into message logs.

`python tests/frameworks/nemo_rl_actor.py <order.json>` reads `config`, `head` and `steps`. Each step is a list of
batches that run concurrently, and each batch is a list of rows. The last line of the output is the report as JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path

from omegaconf import DictConfig

from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig
from nemo_gym.training import trajectory_of
from tests.frameworks.engine import decode

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


class NoGeneration(ValueError):
    """A result without any sampled token."""


class Actor:
    """The owner of the servers, which runs batches on the event loop that calls it."""

    def __init__(self, config: dict, head: dict) -> None:
        self.servers = RunHelper()
        self.servers.start(
            global_config_dict_parser_config=GlobalConfigDictParserConfig(
                dotenv_path=Path("nemo_gym_env.yaml").absolute(),
                initial_global_config_dict=DictConfig({**config, HEAD_SERVER_KEY_NAME: head}),
                skip_load_from_cli=True,
            )
        )
        self.head = BaseServerConfig(host=head["host"], port=head["port"])
        self.collection = RolloutCollectionHelper()

    async def run_rollouts(self, rows: list[dict]) -> list[dict]:
        """Return what training needs of each row, in the order of the rows."""
        found: list[dict] = [{"failed": "not returned"} for _ in rows]
        failures = []
        for task in self.collection.run_examples(examples=rows, head_server_config=self.head):
            try:
                row, result = await task
            except Exception as error:  # noqa: BLE001 - the test looks at the failures
                failures.append(error)
                continue
            assert not failures, "a result came after a failure"
            try:
                found[row["_rowidx"]] = postprocess(result)
            except NoGeneration as error:
                found[row["_rowidx"]] = {"no_generation": str(error), "reward": result["reward"]}
        for error in failures:
            found[error.row["_rowidx"]] = {"failed": str(error), "class": error.failure_class}
        return found


def postprocess(result: dict) -> dict:
    """Return the message log of a result. Raise `AssertionError` if training would go wrong."""
    assert isinstance(result, dict)
    assert isinstance(result["reward"], float)
    log: list[dict] = []
    seen: list[int] = []
    for item in result["response"]["output"]:
        if "generation_token_ids" not in item:
            continue
        prompt, sampled, log_probs = (item[name] for name in TOKEN_FIELDS)
        assert prompt[: len(seen)] == seen, "non-contiguous messages"
        assert len(sampled) == len(log_probs)
        assert not any(map(math.isnan, log_probs))
        log += [
            {"role": "user", "content": "", "token_ids": prompt[len(seen) :]},
            {"role": "assistant", "content": "", "token_ids": sampled, "generation_logprobs": log_probs},
        ]
        seen = prompt + sampled
    if not log:
        raise NoGeneration(decode(seen))
    assert trajectory_of(result).as_nemo_rl()["message_log"] == log
    for item in result["response"]["output"]:
        for name in TOKEN_FIELDS:
            item.pop(name, None)
    return {
        "message_log": log,
        "input_message_log": log[:1],
        "reward": result["reward"],
        "is_masked": (result.get("instance_config") or {}).get("mask_sample", False),
        "agent": result["agent_ref"]["name"],
        "items": [item.get("type") for item in result["response"]["output"]],
        "incomplete": (result["response"].get("incomplete_details") or {}).get("reason"),
    }


async def train(actor: Actor, steps: list[list[list[dict]]]) -> list[list[list[dict]]]:
    return [await asyncio.gather(*(actor.run_rollouts(batch) for batch in batches)) for batches in steps]


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    actor = Actor(order["config"], order["head"])
    try:
        report = asyncio.run(train(actor, order["steps"]))
    finally:
        actor.servers.shutdown()
    print(json.dumps(report))  # noqa: T201 - the test reads the last line


if __name__ == "__main__":
    main()
