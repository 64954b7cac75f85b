"""The external agent, in place of your own: it knows only an OpenAI-compatible address, and imports nothing of ours.

It reads {"input": …} from standard input, calls the model twice, and prints its answer.
"""

import json
import os
import sys
import urllib.request

REVIEW = {"role": "user", "content": "Check your answer. Then write the whole answer again, corrected if necessary."}


def main() -> None:
    given = json.load(sys.stdin)["input"]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    draft = answer_to(messages)
    sys.stdout.write(answer_to([*messages, {"role": "assistant", "content": draft}, REVIEW]) + "\n")


def answer_to(messages: list[dict]) -> str:
    """Return the model's answer to a conversation."""
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/responses",
        json.dumps({"input": messages}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        output = json.load(reply)["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    return "".join(part.get("text", "") for part in parts)


if __name__ == "__main__":
    main()
