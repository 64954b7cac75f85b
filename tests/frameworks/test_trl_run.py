"""TRL without its rollout function: find the agents on the head server and post rows to their `/run`."""

from __future__ import annotations

import asyncio

import aiohttp
import httpx
import pytest
import yaml

from tests.frameworks.counting import AGENT, SAMPLING, add, counting_row
from tests.frameworks.engine import decode

pytestmark = pytest.mark.slow

TIMEOUT_S = 150.0


def agents_of(head):
    """Return the address of each agent of the run, from the configuration that the head server returns."""
    reply = httpx.get(f"{head}/global_config_dict_yaml", verify=False).raise_for_status()
    # The reply is a JSON string that contains YAML, and a YAML parser reads both.
    config = yaml.safe_load(yaml.safe_load(reply.text))
    found = {}
    for name, block in config.items():
        for agent in (block.get("responses_api_agents") or {}).values() if isinstance(block, dict) else ():
            found[name] = f"http://{agent['host']}:{agent['port']}"
    return found


async def call_agents(agents, rows):
    """Post all rows at once in one session with a cookie jar, and return the status and the reply of each."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session:

        async def run(row):
            row["responses_create_params"] |= {"max_output_tokens": 200, **SAMPLING}
            async with session.post(f"{agents[row['agent_ref']['name']]}/run", json=row) as reply:
                return reply.status, await reply.json()

        # The jar has cookies of earlier rollouts when later ones begin.
        return [await run(rows[0]), *await asyncio.gather(*map(run, rows[1:]))]


def sequence_of(result):
    """Return the prompt, the completion, its mask and log-probabilities, as TRL puts the turns together."""
    prompt, completion, mask, log_probs, seen = None, [], [], [], []
    for item in result["response"]["output"]:
        if "generation_token_ids" not in item:
            continue
        if prompt is None:
            prompt = seen = item["prompt_token_ids"]
        context = item["prompt_token_ids"][len(seen) :]
        sampled = item["generation_token_ids"]
        assert item["prompt_token_ids"][: len(seen)] == seen, "non-contiguous turns"
        completion += context + sampled
        mask += [0] * len(context) + [1] * len(sampled)
        log_probs += [0.0] * len(context) + item["generation_log_probs"]
        seen = item["prompt_token_ids"] + sampled
    return prompt, completion, mask, log_probs


async def test_agents_of_the_head_server_run_rows(run):
    agents = agents_of(run.head)
    assert list(agents) == [AGENT]
    ungraded = counting_row("Done.")
    del ungraded["expected_count"]
    replies = await call_agents(
        agents,
        [
            counting_row(add(1), f"Once more. {add(2)}", "Three.", goal=3),
            *[counting_row(add(count), "Done.", start=10, goal=10 + count) for count in range(1, 5)],
            counting_row("I will not count.", start=1),
            ungraded,
        ],
    )
    assert [status for status, _ in replies[:-1]] == [200] * 6
    assert [result["reward"] for _, result in replies[:-1]] == [1.0] * 5 + [0.0]
    prompt, completion, mask, log_probs = sequence_of(replies[0][1])
    assert len(completion) == len(mask) == len(log_probs)
    trained = [token for token, bit in zip(completion, mask, strict=True) if bit]
    texts = ['<call>increment_counter {"count": 1}</call>', 'Once more. <call>increment_counter {"count": 2}</call>']
    assert decode(trained) == "".join([*texts, "Three."])
    assert decode(prompt).endswith("assistant\n")
    assert all(number < 0 for number, bit in zip(log_probs, mask, strict=True) if bit)
    status, failure = replies[-1]
    assert status >= 400
    assert "reward" not in failure
    assert failure["failure_class"] == "invalid_task"
