"""Placements that come to nothing, and servers that cannot share: told before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher.placement.remembering import HELPED_SERVER, remembering

FAILING_SERVER = """
from nemo_gym import BaseVerifyRequest, SimpleResourcesServer


class Failing(SimpleResourcesServer):
    async def startup(self):
        raise OSError("the moon is not in its place")

    async def verify(self, body: BaseVerifyRequest) -> float:
        return 1.0
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("+placement=together-ish",),
            "command line: +placement=together-ish: placement has to be separate or together, and is 'together-ish'. "
            "Did you mean 'together'?",
        ),
        (("+replicas=0",), "command line: +replicas=0: replicas is the number of processes, from 1, or 'auto'"),
        (("+replicas=two",), "command line: +replicas=two: replicas is the number of processes, from 1, or 'auto'"),
        (("+replicas=1.5",), "command line: +replicas=1.5: replicas is the number of processes, from 1, or 'auto'"),
        (("+replicas=true",), "command line: +replicas=true: replicas is the number of processes, from 1, or 'auto'"),
        (
            ("+placement=separate", "+replicas=2"),
            "command line: +replicas=2: replicas says how many processes have all servers together, but placement is "
            "'separate'.",
        ),
    ],
)
def test_a_placement_that_comes_to_nothing_is_told_with_its_place(shared_workplace, words, told):
    finished = shared_workplace.run("ng_run", shared_workplace.environment(), "+head_server.port=0", *words)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith(f"Error: {told}")
    assert finished.err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("placement: apart", "placement"),
        ("workers: 0", "workers"),
        ("workers: many", "workers"),
    ],
)
def test_a_setting_of_a_server_that_comes_to_nothing_is_told_with_its_line(workplace, settings, told):
    finished = workplace.run("ng_run", workplace.environment("plain", settings=settings), "+head_server.port=0")
    assert finished.code == 1
    assert finished.err.startswith("Error: resources_servers/plain/configs/plain.yaml:5: ")
    assert told in finished.err.splitlines()[0]
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("command", [("ng_run", "+head_server.port=0"), ("ng_validate",)])
@pytest.mark.parametrize(("settings", "words"), [("", ("+replicas=2",)), ("\nworkers: 2", ())])
def test_tools_over_mcp_are_refused_to_several_processes(workplace, command, settings, words):
    pytest.importorskip("mcp")
    config_word = remembering(workplace, f"expose_tools_over_mcp: true{settings}")
    finished = workplace.run(*command, config_word, *words)
    assert finished.code == 1
    assert finished.err.startswith(
        "Error: resources_servers/remembering/configs/remembering.yaml:5: remembering: 2 processes serve it, and "
        "calls over MCP do not find the one that has their session."
    )
    assert finished.err.count("\n") == 1
    assert workplace.left_over(within_s=1) == []


@pytest.mark.parametrize("path", ["helper.py", "helper/__init__.py"])
def test_two_modules_of_one_name_cannot_be_together(workplace, path):
    words = [workplace.environment(name, HELPED_SERVER) for name in ("first", "second")]
    for name in ("first", "second"):
        workplace.write(f"resources_servers/{name}/{path}", f"WORD = '{name}'\n")
    finished = workplace.run("ng_run", *words, "+head_server.port=0", "+placement=together")
    assert finished.code == 1
    files = [workplace.folder / f"resources_servers/{name}/{path}" for name in ("second", "first")]
    assert finished.err == (
        f"Error: second: {files[0]} and {files[1]} are modules of one name, and servers that are together share their "
        "modules. Let one of them run separately: placement: separate in the block of second.\n"
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_server_that_fails_as_it_starts_tells_why(workplace, method):
    words = [workplace.environment(), workplace.environment("failing", FAILING_SERVER)]
    finished = workplace.run(
        "ng_run", *words, "+head_server.port=0", "+placement=together", f"+process_start_method={method}"
    )
    assert finished.code == 1
    assert finished.err.startswith("Error: server 'together' ended with exit code 3 before it was ready")
    assert "OSError: the moon is not in its place" in finished.err
    assert str(Path("resources_servers/failing/app.py")) in finished.err
    assert workplace.left_over(within_s=1) == []
