def rehearsed(text: str) -> str:
    return f"{text} Think aloud first."
