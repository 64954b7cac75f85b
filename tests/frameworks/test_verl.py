"""verl: the page's agent loop posts samples to `/run`, and verl's own workers and trainers take what it returns."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.frameworks.counting import COUNTED, ROWS, SAMPLING, add, counting_row, forgetful_row, ungraded_row
from tests.frameworks.engine import decode
from tests.frameworks.programs import block_of, python_with, report_of

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]

TRAINER = Path(__file__).with_name("verl_trainer.py")
SAMPLING_PARAMS = {**SAMPLING, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
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
    names: dict[str, type] = {}
    exec(block_of("verl.md", "gym_rollouts.py"), names)
    address = urlsplit(head)
    return names["GymRollouts"](address.hostname, address.port)


async def rollouts_of(gym, rows):
    """Run the agent loops of a batch concurrently."""
    return await asyncio.gather(*(gym.run(row, SAMPLING_PARAMS) for row in rows), return_exceptions=True)


def test_agent_loops_in_a_thread_run_samples(open_run, engine, in_thread):
    gym = documented_rollouts(open_run.head)
    samples = [counting_row(add(count), "Done.", goal=count if count < 4 else 0) for count in range(1, 5)]
    rows = [row | {"policy_base_url": f"{engine}/v1"} for row in [*samples, ungraded_row()]]
    *outputs, failure = in_thread(rollouts_of(gym, rows))
    in_thread(gym.client.aclose())
    assert [output for output in outputs if isinstance(output, Exception)] == []
    assert [len(output) for output in outputs] == [1] * 4
    assert [output["reward_score"] for (output,) in outputs] == [1.0, 1.0, 1.0, 0.0]
    for count, (output,) in enumerate(outputs, start=1):
        bits = zip(output["response_ids"], output["response_mask"], output["response_logprobs"], strict=True)
        trained = [token for token, bit, _ in bits if bit]
        assert decode(trained) == f'<call>increment_counter {{"count": {count}}}</call>Done.'
        assert output["num_turns"] == 2
    assert "expected_count" in str(failure)


@pytest.fixture(scope="module")
def python():
    return python_with("verl", "nemo_gym", "ray", "torch", "transfer_queue", "verl")


@pytest.fixture(scope="module")
def steps(python, open_run, engine, shared_workplace):
    """Return the results of a step of each of verl's trainers, with the modules of the page."""
    folder = shared_workplace.folder / "trainer"
    folder.mkdir()
    for name in ("gym_rollouts.py", "gym_agent_loop.py"):
        (folder / name).write_text(block_of("verl.md", name))
    port = f"\n  port: {urlsplit(open_run.head).port}\n"
    (folder / "gym_agent_loop.yaml").write_text(block_of("verl.md", "gym_agent_loop.yaml").rstrip() + port)
    given = {"v1": [*ROWS, forgetful_row(), ungraded_row()], "v0": ROWS}
    # Ray's worker processes find the modules by PYTHONPATH.
    env = shared_workplace.env | {"PYTHONPATH": str(folder)}
    return report_of(python, TRAINER, urlsplit(engine).netloc, given=given, folder=folder, env=env)


def trained_text(sample):
    pairs = zip(sample["responses"], sample["response_mask"], strict=True)
    return decode([token for token, bit in pairs if bit])


def test_v1_trains_on_the_samples_of_the_page(steps):
    samples, tags, metrics = (steps["v1"][name] for name in ("samples", "tags", "metrics"))
    one_each = [f"uid{at}_{session}_0" for at in range(3) for session in range(2)]
    several = [f"uid3_{session}_{index}" for session in range(2) for index in range(2)]
    # The rollouts of the ungraded row failed, which did not end the step.
    assert sorted(samples) == [*one_each, *several]
    assert {trained_text(samples[key]) for key in [*one_each[:4], *several]} == {COUNTED}
    assert [sum(samples[key]["rm_scores"]) for key in sorted(samples)] == [1.0] * 2 + [0.0] * 4 + [1.0] * 4
    for key in one_each[4:]:
        assert samples[key]["responses"] == [2]
        assert samples[key]["response_mask"] == [0]
        assert samples[key]["advantages"] == [0.0]
    # The weights of step 5 are version 4, so the samples are not stale.
    assert {(tag["min_global_steps"], tag["max_global_steps"]) for tag in tags.values()} == {(4, 4)}
    assert metrics["training/off_policy/trajectory_staleness/max"] == 0
    assert metrics["training/off_policy/trajectory_spans/max"] == 1
    assert metrics["critic/score/mean"] == pytest.approx(0.6)


def test_v0_trains_on_the_samples_of_the_page(steps):
    samples, metrics = steps["v0"]["samples"], steps["v0"]["metrics"]
    assert [sum(samples[key]["rm_scores"]) for key in sorted(samples)] == [1.0] * 2 + [0.0] * 4
    assert [trained_text(samples[key]) for key in sorted(samples)] == [COUNTED] * 4 + [""] * 2
    assert metrics["critic/score/mean"] == pytest.approx(1 / 3)


def test_servers_of_verl_are_released(steps):
    assert steps["in_flight"] == 0
