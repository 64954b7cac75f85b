from functools import lru_cache


@lru_cache
def all_words(path: str) -> frozenset:
    with open(path) as file:
        return frozenset(line.strip() for line in file)
