"""The program `react.py` with answers that a model should not give."""

import pytest

from responses_api_agents.harness_agent.programs import react


@pytest.mark.parametrize("arguments", ["[]", "null", '{"command": 1}', "{}", "{"])
def test_react_survives_strange_answers(monkeypatch, arguments):
    function = {"name": "shell", "arguments": arguments}
    answers = [{"tool_calls": [{"id": "c1", "function": function}]}, {"role": "assistant", "content": None}]
    sent = []

    def post(url, body):
        sent.append(list(body["messages"]))
        return {"choices": [{"message": answers[len(sent) - 1]}]}

    monkeypatch.setattr(react, "post", post)
    monkeypatch.setenv("NEMO_GYM_MODEL", "policy")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway/v1")
    assert react.main("Look.") == ""
    assert sent[1][-1]["content"].startswith("Error: ")
