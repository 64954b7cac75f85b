"""The attempts at a row, and the choice of the most common answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nemo_gym import NeMoGymResponse, RolloutError
from nemo_gym.grading import final_answer, last_boxed, normalised
from nemo_gym.jsonl import JsonObject


@dataclass
class Attempt:
    """One attempt of the other agent: its answer or its failure."""

    number: int
    session: dict[str, str] = field(default_factory=dict)
    """The cookies of the environment session in which this attempt is made."""
    response: NeMoGymResponse | None = None
    failure: RolloutError | None = None

    def record(self) -> JsonObject:
        """Return the attempt as JSON, to be stored in the graded row of the chosen attempt."""
        if self.failure is None:
            response = None if self.response is None else self.response.model_dump(mode="json")
            return {"attempt": self.number, "response": response}
        return {
            "attempt": self.number,
            "failure_class": self.failure.failure_class,
            "failure_message": str(self.failure),
            "failure_server": self.failure.server,
            "failure_tier": self.failure.tier,
        }


@dataclass
class Answered:
    """An attempt that has a response."""

    attempt: Attempt
    response: NeMoGymResponse


def most_common(answered: Sequence[Answered]) -> tuple[Answered, int]:
    """Return the first attempt with the most common final answer, and the number of attempts with that answer.

    Empty answers count only if all answers are empty. Of equally common answers, the earliest is chosen.
    """
    answers = [answer_in(each.response) for each in answered]
    votes = Counter(answer for answer in answers if answer) or Counter(answers)
    answer, count = votes.most_common(1)[0]
    return answered[answers.index(answer)], count


def answer_in(response: NeMoGymResponse) -> str:
    r"""Return the final answer in the last message, normalised so that different spellings are equal.

    The final answer is the last `\boxed{…}`, or else the text after the last "Answer:", or else the whole text.
    """
    text = response.answer_text
    return normalised(last_boxed(text) or final_answer(text) or text)
