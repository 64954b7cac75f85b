"""Sums with one answer each, scored by several functions: a taskset for trying out the agent."""

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumData(vf.TaskData):
    answer: int


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace):
        return float(str(self.data.answer) in trace.last_reply)

    @vf.reward(weight=0.5)
    async def short(self, trace):
        return float(len(trace.last_reply) <= 3)

    @vf.metric
    async def length(self, trace):
        return float(len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    split: str = "train"
    size: int = 5


class SumsTaskset(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        first = 100 if self.config.split == "test" else 0
        for number in range(first, first + self.config.size):
            prompt = f"What is {number} + {number}?"
            yield SumTask(
                SumData(prompt=prompt, system_prompt="Answer with a number.", answer=2 * number), self.config.task
            )
