"""Versions 1 and 2 of the MCP SDK, each as server and as client: they agree on a protocol, and play the same."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import PATIENCE_S, Command
from tests.servers.mcp.mcp_servers import COUNTING

REPOSITORY = Path(__file__).parents[3]
PYTHONS = {"2": sys.executable, "1": str(REPOSITORY / ".venv-mcp1" / "bin" / "python")}
CLIENT = Path(__file__).with_name("client_of_any_version.py")
WITHOUT_HANDSHAKE, WITH_HANDSHAKE = "2026-07-28", "2025-11-25"
TOOLS = ["add", "read", "explode", "whose", "draw"]

pytestmark = pytest.mark.slow


def started(workplace, python):
    """Start the server with an interpreter, and return the command."""
    config = workplace.environment("counting", COUNTING, settings="expose_tools_over_mcp: true")
    words = [python, "-m", "nemo_gym", "env", "start", config, "+head_server.port=0"]
    out, err = workplace.folder / "out", workplace.folder / "err"
    with out.open("wb") as said, err.open("wb") as failed:
        process = subprocess.Popen(words, cwd=workplace.folder, env=workplace.env, stdout=said, stderr=failed)
    return Command(process, out, err)


@pytest.mark.parametrize(
    ("server", "client", "mode", "version", "listening"),
    [
        ("2", "2", "auto", WITHOUT_HANDSHAKE, ["MCPError"]),
        ("2", "2", WITHOUT_HANDSHAKE, WITHOUT_HANDSHAKE, ["MCPError"]),
        ("2", "2", "legacy", WITH_HANDSHAKE, ["ListenNotSupportedError"]),
        ("2", "1", "", WITH_HANDSHAKE, []),
        ("1", "2", "auto", WITH_HANDSHAKE, ["ListenNotSupportedError"]),
        ("1", "1", "", WITH_HANDSHAKE, []),
    ],
)
def test_each_client_plays_with_each_server(workplace, server, client, mode, version, listening):
    if "1" in (server, client) and not Path(PYTHONS["1"]).exists():
        pytest.skip("version 1 of the MCP SDK is missing: make borders-mcp")
    command = started(workplace, PYTHONS[server])
    try:
        command.wait_for("head server: ")
        url = command.servers["counting"]["url"]
        seed = {"responses_create_params": {"input": []}, "first": 1}
        metadata = httpx.post(f"{url}/seed_session", json=seed, trust_env=False).json()["mcp"]
        words = [PYTHONS[client], str(CLIENT), f"{url}{metadata['url_path']}", json.dumps(metadata["headers"]), mode]
        played = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert played.returncode == 0, played.stderr
        # A server whose tools do not change rejects those who listen for changes at once.
        assert json.loads(played.stdout) == [
            version,
            [
                TOOLS,
                ["The counter is at 3.", False],
                ["Invalid arguments for add: 'by' is missing. Expected: by (integer).", True],
                ['{"count":3}', False],
                *listening,
            ],
        ]
    finally:
        command.end()
