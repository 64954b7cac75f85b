"""Responses API requests as found in dataset rows."""

from __future__ import annotations

from nemo_gym.schemas.responses import ResponseCreateParams


def test_null_tools_and_tool_choice_mean_the_defaults():
    params = ResponseCreateParams.model_validate({"input": "hi", "tools": None, "tool_choice": None})
    assert (params.tools, params.tool_choice) == ([], "auto")
