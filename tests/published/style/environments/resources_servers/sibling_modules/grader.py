from dataclasses import dataclass

from resources_servers.sibling_modules.lexicon.words import all_words


@dataclass
class Grade:
    reward: float
    unknown: list


def grade(text: str, path: str) -> Grade:
    unknown = [word for word in text.lower().split() if word not in all_words(path)]
    return Grade(reward=1.0 - len(unknown) / max(len(text.split()), 1), unknown=unknown)
