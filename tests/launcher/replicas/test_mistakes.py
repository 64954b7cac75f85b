"""Invalid process counts, and servers limited to one process, are reported at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher.replicas.remembering import remembering

pytestmark = pytest.mark.slow

FAILING_SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Failing(SimpleResourcesServer):
    async def startup(self):
        raise OSError("the moon is not in its place")

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("+placement=together",), "command line: +placement=together: placement is not a setting"),
        *(
            (
                (f"+replicas={given}",),
                f"command line: +replicas={given}: replicas: it must be the number of processes (1 or more)",
            )
            for given in ("0", "two", "1.5", "true")
        ),
    ],
)
def test_invalid_replicas_report_their_location(shared_workplace, words, message):
    finished = shared_workplace.run("ng_run", shared_workplace.environment(), "+head_server.port=0", *words)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith(f"Error: {message}")
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("workers: 0", "workers"),
        ("workers: many", "workers"),
    ],
)
def test_invalid_server_setting_reports_its_line(workplace, settings, message):
    finished = workplace.run("ng_run", workplace.environment("plain", settings=settings), "+head_server.port=0")
    assert finished.code == 1
    assert finished.err.startswith("Error: resources_servers/plain/configs/plain.yaml:5: ")
    assert message in finished.err.splitlines()[0]
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("command", [("ng_run", "+head_server.port=0"), ("ng_validate",)])
@pytest.mark.parametrize(("settings", "words"), [("", ("+replicas=2",)), ("\nworkers: 2", ())])
def test_tools_over_mcp_reject_several_processes(workplace, command, settings, words):
    pytest.importorskip("mcp")
    config_word = remembering(workplace, f"expose_tools_over_mcp: true{settings}")
    finished = workplace.run(*command, config_word, *words)
    assert finished.code == 1
    assert finished.err.startswith(
        "Error: resources_servers/remembering/configs/remembering.yaml:5: remembering: with 2 processes, a "
        "call over MCP may reach a process that does not have its session."
    )
    assert finished.err.count("\n") == 1
    assert workplace.left_over() == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_server_failing_at_startup_reports_the_reason(workplace, method):
    words = [workplace.environment(), workplace.environment("failing", FAILING_SERVER)]
    finished = workplace.run("ng_run", *words, "+head_server.port=0", f"+process_start_method={method}")
    assert finished.code == 1
    assert finished.err.startswith("Error: server 'failing' ended with exit code 3 before it was ready")
    assert "OSError: the moon is not in its place" in finished.err
    assert str(Path("resources_servers/failing/app.py")) in finished.err
    assert workplace.left_over() == []
