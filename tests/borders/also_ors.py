"""Play plans with the clients of ors-sdk, openreward or TRL, for test_also_serve.py. Prints the outcomes as JSON."""

import importlib.util
import json
import os
import sys
from pathlib import Path

KIND, URL, TOKEN = sys.argv[1:]
os.environ["OPENREWARD_SESSION_URL"] = URL


def client():
    if KIND == "ors":
        from ors.client import ORS

        return ORS(base_url=URL, api_key=TOKEN)
    from openreward import OpenReward

    return OpenReward(api_key=TOKEN, base_url=URL)


def by_sessions(plans):
    # Keep the client, because its connections close with it.
    kept = client()
    env = kept.environments.get(os.environ["ENVIRONMENT"])
    assert env.num_tasks("example") == len(env.list_tasks("example")) == 5
    played = []
    for plan in plans:
        task = env.get_task("example", plan["reset"]["index"])
        with env.session(task=task, secrets={"OPENAI_API_KEY": "open sesame"}) as session:
            assert session.get_prompt()
            assert session.list_tools()[-1].name == "submit"
            for name, arguments in plan["calls"]:
                called = session.call_tool(name, arguments)
                assert (called.reward, called.finished) == (None, False), called
            last = session.call_tool("submit", {"answer": plan["answer"]})
            try:
                session.call_tool("submit", {"answer": plan["answer"]})
                problem = ""
            except Exception as error:  # noqa: BLE001 - each package has its own class
                problem = str(error)
        played.append({"reward": last.reward, "done": last.finished, "problem": problem})
    return played


def by_trl(plans):
    """Use the file of TRL's adapter alone, because its package imports torch."""
    place = Path(importlib.util.find_spec("trl").origin).parent / "experimental/openreward/environment.py"
    spec = importlib.util.spec_from_file_location("adapter", place)
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    env = adapter._RolloutEnvironment(base_url=URL, split="example", api_key=TOKEN)
    played = []
    for plan in plans:
        assert env.reset(task_index=plan["reset"]["index"])
        for name, arguments in plan["calls"]:
            getattr(env, name)(**arguments)
        env.submit(answer=plan["answer"])
        played.append({"reward": env.reward, "done": env.finished})
    env._close()
    return played


print(json.dumps((by_trl if KIND == "trl" else by_sessions)(json.load(sys.stdin))))  # noqa: T201 - read by the test
