"""A game of several turns, whose engine plays the user. The taskset is endless."""

from itertools import count

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData]):
    pass


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        turns = 0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                turns += 1
                if (guess := int(segment.last_reply)) == task.data.number:
                    break
                segment = await interaction.turn("higher" if guess < task.data.number else "lower")
        interaction.trace.record_reward("guessed", 1.0 / turns)


class GuessTaskset(vf.Taskset[GuessTask]):
    INFINITE = True

    def load(self):
        for number in count(3):
            yield GuessTask(GuessData(prompt="Guess my number.", number=number % 10), self.config.task)
