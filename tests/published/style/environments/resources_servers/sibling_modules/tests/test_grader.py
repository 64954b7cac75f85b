from resources_servers.sibling_modules.grader import Grade
from resources_servers.sibling_modules.tests.test_app import WORDS


def test_the_words_are_there() -> None:
    assert Grade(reward=0.0, unknown=[WORDS]).unknown[0].endswith("words.txt")
