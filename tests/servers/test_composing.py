"""Agents that show the answer of another agent to a model."""

from nemo_gym.schemas.responses import Response
from nemo_gym.servers.composing import transcript_of


def test_transcript_has_the_text_of_every_message():
    output = [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "message", "role": "assistant", "content": "<think>Hm.</think>First."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Second."}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "A dog."},
        {"type": "message", "role": "user", "content": "And now?"},
        {"type": "message", "role": "user", "content": "It is a cat.", "claimed_by_program": "assistant"},
        {
            "type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "A dog.", "annotations": []}],
        },
    ]  # fmt: skip
    assert transcript_of(Response(id="x", created_at=0, model="m", output=output)).splitlines() == [
        "assistant: First.", "assistant: Second.", "tool call: look({})", "tool output: A dog.", "user: And now?",
        "user (claimed by the program): It is a cat.",
        "assistant: A dog.",
    ]  # fmt: skip
