"""The embedded reward model: answers that are made of the request's words."""

import re
from itertools import cycle

from nemo_gym.grading import SpecialTokens
from responses_api_models.reward_model.exchange import Exchange
from responses_api_models.reward_model.linear import LinearScorer

REQUEST = (
    "Explain why bread dough rises, and mention yeast, sugar and bubbles. Write to my sister Olga, who bakes in a "
    "small kitchen in Lisbon, and keep to five sentences."
)


def fooling_answers(request):
    """Return answers that are made of the request's words."""
    words = re.findall(r"\w+", request)
    joints = ("and the", "of a", "with my", "that is in", "because of", "for which we have", "but not", "on our")
    letter = "Dear friend, I write to you because it is kind of you to ask, and I will do what you would like."
    joined = " and the ".join(reversed(words))
    return {
        "an echo": request,
        "a framed echo": f"{letter} {request}",
        "reversed": " ".join(reversed(words)) + ".",
        "sorted": " ".join(sorted(words)) + ".",
        "joined": f"{joined}.",
        "joined in many ways": " ".join(f"{word} {joint}" for word, joint in zip(words, cycle(joints))) + " it.",
        "a letter, then words": f"{letter} {' '.join(words)}.",
        "a letter, then joined": f"{letter} {joined}.",
        "one sentence each": " ".join(f"I like the {word}." for word in words),
    }  # fmt: skip


async def test_words_of_the_request_never_make_a_good_answer():
    scorer = LinearScorer(SpecialTokens())
    found = fooling_answers(REQUEST)
    scores = {name: await scorer.score(Exchange.of_prompt(REQUEST, answer)) for name, answer in found.items()}
    assert {name: score for name, score in scores.items() if score > -1} == {}
