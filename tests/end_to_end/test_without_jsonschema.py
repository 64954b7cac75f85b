"""A run of the embedded policy without jsonschema-rs, as after an installation without extras."""

from __future__ import annotations

import pytest

SHADOW = "raise ModuleNotFoundError('not here')\n"


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        ("example_session_state_mgmt", 0, ["5 planned = 5 scored + 0 failed"]),
        ("example_tool_call_multireward", 1, ["jsonschema-rs", "not installed: pip install 'nemo-gym[schema]'"]),
    ],
)
def test_only_what_needs_the_package_asks_for_it(workplace, environment, code, words):
    workplace.write("shadow/jsonschema_rs.py", SHADOW)
    done = workplace.run(
        *("ng", "eval", "run", "--resources-server", environment, "--model-type", "sample_model"),
        *("--split", "example", "--output", "out.jsonl", "+head_server.port=0"),
        PYTHONPATH=str(workplace.folder / "shadow"),
    )
    assert done.code == code, done.err
    assert [word for word in words if word not in done.out + done.err] == []
