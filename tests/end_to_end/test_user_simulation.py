"""Complete conversations with a simulated user: environments, agent and runs."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from nemo_gym.jsonl import read_rows
from nemo_gym.schemas.items import EasyInputMessage
from nemo_gym.testing import FakeModel, make_server, run
from resources_servers.calendar import oracle as calendar_oracle
from resources_servers.calendar import prepare as calendar_prepare
from resources_servers.calendar.app import CalendarServer
from resources_servers.multiple_intents import oracle as wishes_oracle
from resources_servers.multiple_intents import prepare as wishes_prepare
from resources_servers.multiple_intents.app import MultipleIntentsServer
from resources_servers.proactive_asking import oracle, prepare
from resources_servers.proactive_asking.app import ProactiveAskingServer
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_agents.user_simulation_agent.app import UserSimulationAgent
from responses_api_models.sample_model.app import SampleModel

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
SAMPLE_MODEL = "responses_api_models/sample_model/configs/sample_model.yaml"
PROACTIVE = "resources_servers/proactive_asking/configs/proactive_asking.yaml"
WITH_USER_MODEL = "resources_servers/proactive_asking/configs/proactive_asking_user_model.yaml"
CALENDAR = "resources_servers/calendar/configs/calendar_user_simulation.yaml"
AGENT = "proactive_asking_user_model_user_simulation_agent.responses_api_agents.user_simulation_agent"
THOUGHTFUL = """
user_model:
  responses_api_models:
    sample_model:
      entrypoint: app.py
      answers: ["<think>What would a user say, who"]
"""
CHATTY = """
user_model:
  responses_api_models:
    sample_model:
      entrypoint: app.py
      answers: ["<think>hm</think>Go on.", "That is all. ###STOP###"]
"""


def agent_on(server, replies, agent_class=UserSimulationAgent):
    ref = {"type": "resources_servers", "name": server.config.name}
    return make_server(agent_class, model=FakeModel(replies), servers=[server], resources_server=ref)


async def test_policy_that_uses_the_users_answer_is_rewarded(tmp_path):
    examples = REPOSITORY / "resources_servers/proactive_asking/data/example.jsonl"
    made = prepare.prepare(tmp_path / "rows.jsonl", 40, complete_share=0.2)
    for row in [*read_rows(examples), *read_rows(made)]:
        solution = oracle.solve(row)
        said = [item for item in solution if not isinstance(item, EasyInputMessage)]
        graded = await run(agent_on(make_server(ProactiveAskingServer), said), **row)
        assert (graded.reward, graded.ended_by) == (1.0, "goal_met")
        # The user's messages are those that the oracle expects.
        heard = [item.content for item in graded.response.output if getattr(item, "role", None) == "user"]
        assert heard == [item.content for item in solution if isinstance(item, EasyInputMessage)]


async def test_correct_guess_without_asking_earns_nothing(tmp_path):
    for row in read_rows(prepare.prepare(tmp_path / "rows.jsonl", 5)):
        graded = await run(agent_on(make_server(ProactiveAskingServer), oracle.solve(row)[2:]), **row)
        assert (graded.reward, graded.is_booked, graded.was_asked) == (0.0, True, False)


async def test_correct_live_calendar_earns_all_and_becomes_row(tmp_path):
    live = list(read_rows(calendar_prepare.prepare(tmp_path / "live.jsonl", 6, live=True)))
    rollouts = []
    for row in live:
        answers = ["Noted."] * len(row["user"]["script"]) + calendar_oracle.solve(row)
        graded = await run(agent_on(make_server(CalendarServer), answers), **row)
        assert (graded.reward, graded.user_turns) == (1.0, len(row["user"]["script"]))
        rollouts.append(graded.model_dump_json())
    (tmp_path / "rollouts.jsonl").write_text("\n".join(rollouts))
    calendar_prepare.prepare(tmp_path / "held.jsonl", rollouts=tmp_path / "rollouts.jsonl")
    held = list(read_rows(tmp_path / "held.jsonl"))
    assert [row["exp_cal_state"] for row in held] == [row["exp_cal_state"] for row in live]
    assert [row["responses_create_params"]["input"][-1]["content"] for row in held] == [
        row["user"]["script"][-1] for row in live
    ]


async def test_wishes_fulfilled_in_their_turns_earn_all(tmp_path):
    for row in read_rows(wishes_prepare.prepare(tmp_path / "rows.jsonl", 24)):
        solution = wishes_oracle.solve(row)
        said = [item for item in solution if not isinstance(item, EasyInputMessage)]
        graded = await run(agent_on(make_server(MultipleIntentsServer), said), **row)
        assert (graded.reward, graded.ended_by) == (1.0, "goal_met")
        assert graded.user_turns == len(row["user"]["script"])


async def test_single_messages_with_several_wishes_need_no_user(tmp_path):
    subsets = ["single_turn", "dependent"]
    for row in read_rows(wishes_prepare.prepare(tmp_path / "rows.jsonl", 12, subset=subsets)):
        agent = agent_on(make_server(MultipleIntentsServer), wishes_oracle.solve(row), SimpleAgent)
        assert (await run(agent, **row)).reward == 1.0


async def test_conversation_depends_only_on_the_seeds():
    async def course(policy_seed, user_seed):
        server = make_server(ProactiveAskingServer)
        policy = make_server(SampleModel, name="policy_model", seed=policy_seed)
        user = make_server(SampleModel, name="user_model", seed=user_seed, answers=["Hm.", "Well?", "Go on.", "No."])
        agent = make_server(
            UserSimulationAgent,
            servers=[server, policy, user],
            resources_server={"type": "resources_servers", "name": "proactive_asking"},
            user_model_server={"type": "responses_api_models", "name": "user_model"},
        )
        row = next(iter(read_rows(REPOSITORY / "resources_servers/proactive_asking/data/example.jsonl")))
        return (await run(agent, **row, _ng_task_index=0, _ng_rollout_index=0)).model_dump_json()

    first = await course(1, 1)
    assert await course(1, 1) == first
    assert await course(2, 1) != first
    assert await course(1, 2) != first


def collected(workplace, output, *configs, words=()):
    """Return the finished command, its scored rollouts and its failed ones."""
    finished = workplace.run(
        "ng_e2e_collect_rollouts",
        f"+config_paths=[{','.join(map(str, configs))},{SAMPLE_MODEL}]",
        "+split=example",
        "+num_repeats=4",
        f"+output_jsonl_fpath={output}.jsonl",
        "+head_server.port=0",
        *words,
    )
    assert "Traceback" not in finished.err + finished.out
    for log in (workplace.folder / f"{output}_run/logs").iterdir():
        assert "Traceback" not in log.read_text()
    good, bad = (
        [orjson.loads(line) for line in (workplace.folder / name).read_bytes().splitlines()]
        for name in (f"{output}.jsonl", f"{output}_failures.jsonl")
    )
    return finished, good, bad


def test_run_with_scripted_users_scores_every_rollout(shared_workplace):
    finished, good, bad = collected(shared_workplace, "results/scripted", PROACTIVE, CALENDAR)
    assert finished.code == 0
    assert "40 planned = 40 scored + 0 failed" in finished.out
    assert (len(good), len(bad)) == (40, 0)
    assert {row["user_turns"] for row in good if "exp_cal_state" in row} == {3, 4, 5}


def test_user_model_tokens_are_counted_separately(shared_workplace):
    path = shared_workplace.write("chatty.yaml", CHATTY)
    words = [f"++{AGENT}.user_model_server.name=user_model"]
    finished, good, _ = collected(shared_workplace, "results/chatty", WITH_USER_MODEL, path, words=words)
    assert "20 planned = 20 scored + 0 failed" in finished.out
    assert {row["ended_by"] for row in good} <= {"goal_met", "max_user_turns"}
    assert all(row["user_usage"]["total_tokens"] > 0 for row in good)
    assert "###STOP###" not in str([row["response"]["output"] for row in good])


def test_failing_user_model_fails_its_rollouts(shared_workplace):
    path = shared_workplace.write("thoughtful.yaml", THOUGHTFUL)
    words = [f"++{AGENT}.user_model_server.name=user_model"]
    finished, good, bad = collected(shared_workplace, "results/thoughtful", WITH_USER_MODEL, path, words=words)
    assert "20 planned = 0 scored + 20 failed" in finished.out
    assert good == []
    for row in bad:
        assert (row["_ng_failure_class"], row["_ng_failure_server"]) == ("model_failed", "user_model")
        assert row["_ng_failure_message"].startswith("the simulated user 'user_model': ")
