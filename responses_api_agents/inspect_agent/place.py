"""The settings of a worker of Inspect: its task and what of it is used."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from nemo_gym import find_path
from nemo_gym.jsonl import JsonObject
from responses_api_agents.verifiers_agent.place import Framework, WorkerPlace, taskset_of


class InspectPlace(WorkerPlace):
    """The settings of a worker of Inspect."""

    framework = Framework(
        "inspect", "inspect_ai", "task", "inspect-ai==0.3.285 openai", Path(__file__).with_name("worker.py")
    )

    task: str
    """The task, with arguments if it needs some: `my_tasks.py@my_task?size=10`, or the name of an installed one."""
    score: str | None = None
    """The score that is the reward: `SCORER`, or `SCORER.KEY` of a score with several values. By default the first."""
    max_steps: int = Field(default=200, ge=1)
    """The maximum number of turns of the model, unless the task limits turns or messages itself."""

    @field_validator("task")
    @classmethod
    def _names_a_task(cls, value: str) -> str:
        taskset_of(value)
        return value

    @property
    def ident(self) -> str:
        """The name of the task, without its arguments."""
        return str(taskset_of(self.task)["id"])

    def first_line(self, listed: int) -> JsonObject:
        arguments = taskset_of(self.task)
        file, at, name = str(arguments.pop("id")).partition("@")
        # A file may be in another search root than the working folder, as the demo of this folder is.
        found = find_path(Path(file), Path.is_file) if at else None
        own: JsonObject = {"task": f"{found or file}{at}{name}", "args": arguments, "score": self.score}
        return {**own, "max_turns": self.max_steps, "most_bytes": self.most_bytes, "list": listed}
