"""verl: agent loops on the event loop of a thread find the run through its head server and post samples to `/run`."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.frameworks.counting import SAMPLING, add, counting_row
from tests.frameworks.engine import decode

PAGE = Path(__file__).parents[2] / "docs" / "training" / "verl.md"
SAMPLING_PARAMS = {**SAMPLING, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
PROMPT_LENGTH, RESPONSE_LENGTH = 2000, 400
TIMEOUT_S = 100.0


@pytest.fixture
def in_thread():
    """Return a function that runs a coroutine on an event loop in a thread of its own, as a worker process does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(TIMEOUT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def documented_rollouts(head):
    """Return the object that the documentation defines, connected to a run."""
    code = re.search(r"```python file=gym_rollouts.py\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    names: dict[str, type] = {}
    exec(code, names)
    address = urlsplit(head)
    return names["GymRollouts"](address.hostname, address.port)


def padded(output):
    """Return what verl stacks of a sample: prompts padded left, responses right, the reward at the last token."""
    prompt, response, mask, log_probs = (
        output[name] for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs")
    )
    assert 0 < len(prompt) <= PROMPT_LENGTH
    assert 0 < len(response) == len(mask) == len(log_probs) <= RESPONSE_LENGTH
    assert set(mask) <= {0, 1}
    assert all(number == 0.0 for number, bit in zip(log_probs, mask, strict=True) if not bit)
    free = RESPONSE_LENGTH - len(response)
    return {
        "prompts": [0] * (PROMPT_LENGTH - len(prompt)) + prompt,
        "responses": response + [0] * free,
        "response_mask": mask + [0] * free,
        "rm_scores": [0.0] * (len(response) - 1) + [output["reward_score"]] + [0.0] * free,
    }


async def rollouts_of(gym, rows):
    """Run the agent loops of a batch concurrently. verl would not catch the failures."""
    return await asyncio.gather(*(gym.run(row, SAMPLING_PARAMS) for row in rows), return_exceptions=True)


def test_agent_loops_in_a_thread_run_samples(run, in_thread):
    gym = documented_rollouts(run.head)
    samples = [counting_row(add(count), "Done.", goal=count if count < 4 else 0) for count in range(1, 5)]
    ungraded = counting_row("Done.")
    del ungraded["expected_count"]
    *outputs, failure = in_thread(rollouts_of(gym, [*samples, ungraded]))
    in_thread(gym.client.aclose())
    assert [output for output in outputs if isinstance(output, Exception)] == []
    batch = [padded(output) for output in outputs]
    assert [sum(each["rm_scores"]) for each in batch] == [1.0, 1.0, 1.0, 0.0]
    for count, each in enumerate(batch, start=1):
        trained = [token for token, bit in zip(each["responses"], each["response_mask"], strict=True) if bit]
        assert decode(trained) == f'<call>increment_counter {{"count": {count}}}</call>Done.'
    assert [output["num_turns"] for output in outputs] == [2] * 4
    assert "expected_count" in str(failure)
