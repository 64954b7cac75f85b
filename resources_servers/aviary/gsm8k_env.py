"""A word problem as an Aviary environment, with a calculator and a tool that submits the answer."""

from aviary.core import Environment, Message, Messages, Tool, ToolRequestMessage
from pydantic import BaseModel

from nemo_gym.grading import same_number
from resources_servers.aviary.calculator import NotCalculable, calculate
from resources_servers.aviary.gsm8k import final_answer


class Gsm8kState(BaseModel):
    """The progress of one attempt."""

    reward: float = 0.0
    is_done: bool = False


class Gsm8kEnvironment(Environment[Gsm8kState]):
    """One question. Only the first submitted answer counts."""

    def __init__(self, question: str, answer: str) -> None:
        """Take a GSM8K solution as `answer`. Only the text after `####` is compared."""
        self.question = question
        self.expected = final_answer(answer)
        self.state = Gsm8kState()
        self.tools = [Tool.from_function(self.calculate), Tool.from_function(self.submit_answer)]

    async def reset(self) -> tuple[Messages, list[Tool]]:
        """Start a new attempt, and return the question and the tools."""
        self.state = Gsm8kState()
        return [Message(content=self.question)], self.tools

    async def step(self, action: Message) -> tuple[Messages, float, bool, bool]:
        """Run the calls of a turn sequentially."""
        if not isinstance(action, ToolRequestMessage):
            return self.default_no_tool_calls_response
        earned_before = self.state.reward
        results = await self.exec_tool_calls(action, concurrency=False)
        return list(results), self.state.reward - earned_before, self.state.is_done, False

    async def calculate(self, expression: str) -> str:
        """Calculate the value of an arithmetic expression.

        Args:
            expression: Numbers with + - * / ** and parentheses, such as (16 - 3 - 4) * 2.
        """
        try:
            return calculate(expression)
        except NotCalculable as error:
            return f"Error: {error}."

    async def submit_answer(self, answer: str | float) -> str:
        """Submit the answer to the question, which ends the task.

        Args:
            answer: The answer, a number.
        """
        if self.state.is_done:
            return "An answer was submitted before; this one does not count."
        is_right = same_number(self.expected, str(answer)) is True
        self.state = Gsm8kState(reward=float(is_right), is_done=True)
        return "The answer was submitted."
