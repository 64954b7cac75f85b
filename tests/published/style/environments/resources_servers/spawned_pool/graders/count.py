from pathlib import Path


def count_letters(text: str) -> int:
    allowed = Path("data/letters.txt").read_text().strip()
    return sum(text.count(letter) for letter in allowed)
