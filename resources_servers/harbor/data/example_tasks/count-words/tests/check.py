"""Compare the counts with those of the original text."""

import json
from collections import Counter

TEXT = "the cat saw the dog and the dog saw the cat and the bird saw all of them"

with open("/app/counts.json") as file:
    assert json.load(file) == Counter(TEXT.split())
