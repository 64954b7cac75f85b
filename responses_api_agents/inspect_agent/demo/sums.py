"""Sums with one number as the answer: a small task of Inspect, to try the agent."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message


@task
def sums(size: int = 5) -> Task:
    """Ask for so many sums."""
    samples = [
        Sample(id=f"sum-{number}", input=f"What is {number} + {number}?", target=str(2 * number))
        for number in range(size)
    ]
    solver = [system_message("Answer with a number."), generate()]
    return Task(dataset=samples, solver=solver, scorer=match(numeric=True))
