"""The shared requests to a chat assistant: many, distinct, and each with an answer of its own."""

import itertools
import random

from resources_servers.genrm_compare.chat_tasks import KINDS


def tasks(seed, count=1000):
    rng = random.Random(seed)
    return [make(rng) for make in itertools.islice(itertools.cycle(KINDS), count)]


def test_requests_are_distinct_and_repeatable():
    assert tasks(1) == tasks(1)
    assert len({task.request for task in tasks(1)}) >= 990
    assert not {task.request for task in tasks(1)} & {task.request for task in tasks(2)}


def test_kinds_are_named_after_their_makers():
    assert [task.kind for task in tasks(1, len(KINDS))] == [make.__name__ for make in KINDS]


def test_good_answers_are_about_their_request():
    for task in tasks(3):
        asked, answered = (set(text.lower().split()) for text in (task.request, task.answer))
        assert len(asked & answered) >= 5, task
        assert 30 <= len(task.answer.split()) <= 120, task
