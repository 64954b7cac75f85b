"""Rollouts of a hostile model, agent or data set that attack their reader."""

from __future__ import annotations

from typing import Any

import orjson

Row = dict[str, Any]

MARKUP = """<script>window.attacked = 1; alert(1)</script>
<img src="x" onerror="window.attacked = 2; alert(2)">
<img src="https://evil.example/pixel.png">
<svg onload="window.attacked = 3"><a xlink:href="javascript:alert(3)"><text>svg</text></a></svg>
<iframe srcdoc="<script>parent.attacked = 4</script>"></iframe>
<style>body { display: none }</style><link rel="stylesheet" href="https://evil.example/style.css">
<form action="https://evil.example/form"><button id="app" name="parentNode">form</button></form>
<a href="javascript:window.attacked=5">plain link</a> <base href="https://evil.example/">
<meta http-equiv="refresh" content="0; url=https://evil.example/">

[script link](javascript:window.attacked=6) [data link](data:text/html,<script>parent.attacked=7</script>)
![picture](https://evil.example/markdown.png) <https://evil.example/auto>

$$\\href{javascript:window.attacked=8}{x} \\includegraphics{https://evil.example/maths.png}$$
"""
BIDI, ANSI = "user\u202e}Admin\u2066 if\u2069", "\x1b]0;title\x07\x1b[31mred\x1b[0m"
TEXT = f"{MARKUP}\n{BIDI}\n{ANSI}\nafter the attack"
LONG_LINE = "x" * (1 << 20)
NAME = '"><img src=x onerror=alert(9)>'


def message(text: str, **fields: Any) -> Row:
    return {
        "type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}], **fields,
    }  # fmt: skip


def _answers(row: Row, output: list[Row], **fields: Any) -> Row:
    """Return the row for an agent that answers with this output."""
    response = {"id": NAME, "model": NAME, "object": "response", "created_at": 0, "output": output}
    return {
        **row,
        "act": "answer",
        "bytes": orjson.dumps({**row, "response": response, "reward": 0.5} | fields).decode(),
    }


def rows() -> list[Row]:
    """Return rows whose agent attacks the reader: by the conversation, by its grading, and by size."""
    call = {"type": "function_call", "id": "c", "call_id": NAME, "name": NAME, "arguments": TEXT}
    result = {"type": "function_call_output", "call_id": NAME, "output": TEXT}
    pictures = [
        {"type": "input_image", "image_url": address, "detail": "auto"}
        for address in (
            "https://evil.example/input.png",
            "file:///etc/passwd",
            "javascript:alert(4)",
            "//evil.example/x",
        )
    ]
    asked = {"type": "input_text", "text": TEXT}
    reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": TEXT}]}
    row, shown = (
        {"responses_create_params": {"input": [{"role": "user", "content": [asked, *images]}]}}
        for images in (pictures[:1], pictures)
    )
    graded = {
        "reward_components": {NAME: 0.5, "__proto__": 0.25}, "verdict": TEXT, NAME: NAME,
        "judge_evaluations": [{"prompt": TEXT, "response": TEXT, "verdict": NAME}],
    }  # fmt: skip
    unknown = {"type": NAME, "id": "u", "value": TEXT}
    return [
        # The collector rejects a row with such addresses, but a result may have them.
        _answers(row, [reasoning, call, result, unknown, message(TEXT)], **graded, **shown),
        _answers(row, [message(LONG_LINE)]),
        # A reply that is not a result becomes the message of the failure.
        {**row, "act": "answer", "bytes": TEXT},
    ]
