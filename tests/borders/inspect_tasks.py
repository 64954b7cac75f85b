"""Tasks of Inspect: tools, several scores, limits, judges, and faults."""

import asyncio
import os
import time
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, match, mean, model_graded_qa, scorer
from inspect_ai.solver import basic_agent, generate, solver, system_message
from inspect_ai.tool import ToolError, tool
from inspect_ai.util import store


@tool
def price():
    async def execute(fruit: str) -> int:
        """Return the price of a fruit.

        Args:
            fruit: its name
        """
        if fruit == "fig":
            raise ToolError("figs are sold out")
        return {"apple": 3, "pear": 5}[fruit]

    return execute


@tool
def buy():
    async def execute(fruit: str) -> str:
        """Buy a fruit.

        Args:
            fruit: its name
        """
        store().set("bought", [*store().get("bought", []), fruit])
        return "bought"

    return execute


@scorer(metrics=[accuracy()])
def bought():
    async def score(state, target):
        found = state.store.get("bought", [])
        return Score(value="C" if found == [target.text] else "I", explanation=f"bought {found}")

    return score


@task
def shop():
    sample = Sample(input="Buy the cheaper of apple and pear.", target="apple", metadata={"shop": {"open": True}})
    agent = basic_agent(init=system_message("You buy fruit."), tools=[price(), buy()], max_attempts=1)
    return Task(dataset=[sample], solver=agent, scorer=[bought(), match()])


@scorer(metrics={"right": [mean()], "brief": [mean()]})
def both():
    async def score(state, target):
        text = state.output.completion
        return Score(value={"right": float(text == target.text), "brief": 1 / len(text)})

    return score


@task
def several():
    return Task(dataset=[Sample(input="Say four.", target="four")], solver=generate(), scorer=both())


@task
def limited(messages: int = 4):
    agent = basic_agent(tools=[price()])
    return Task(dataset=[Sample(input="Go.", target="x")], solver=agent, scorer=match(), message_limit=messages)


@task
def judged():
    return Task(dataset=[Sample(input="Who?", target="Ada")], solver=generate(), scorer=model_graded_qa())


@task
def boxed():
    return Task(dataset=[Sample(input="Go.")], solver=generate(), scorer=match(), sandbox="docker")


@solver
def faulty():
    async def solve(state, generate):
        match state.metadata["fault"]:
            case "raises":
                raise ValueError("the solver is broken")
            case "dies":
                os._exit(7)
            case "blocks":
                Path(state.metadata["file"]).touch()  # noqa: ASYNC240
                time.sleep(3600)  # noqa: ASYNC251
            case "waits":
                await asyncio.sleep(3600)
            case "floods":
                for _ in range(200):
                    print("x" * 10_000)  # noqa: T201
            case "asks nothing":
                return state
        return await generate(state)

    return solve


@scorer(metrics=[mean()])
def strange():
    async def score(state, target):
        match state.metadata["fault"]:
            case "is unscored":
                return Score.unscored(reason="grader_failed")
            case "is a word":
                return Score(value="splendid")
            case "is a list":
                return Score(value=[1, 0])
            case "scorer raises":
                raise ValueError("the scorer is broken")
            case "is huge":
                return Score(value=1, explanation="x" * 2_000_000)
        return Score(value=1)

    return score


@task
def faults(time_limit: int | None = None):
    samples = [Sample(input="Go.", metadata={"fault": "none"})]
    return Task(dataset=samples, solver=faulty(), scorer=strange(), time_limit=time_limit)
