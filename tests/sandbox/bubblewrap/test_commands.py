"""Commands in a bubblewrap sandbox: their environment, exit codes, outputs and timeouts."""

import asyncio
import os
import time

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxSpec
from tests.conftest import PATIENCE_S
from tests.sandbox.bubblewrap.watching import COMMANDS, lists, ran, until

pytestmark = pytest.mark.needs_bubblewrap


async def test_command_lines_and_argument_lists_both_run(sandbox):
    assert await ran(sandbox, "echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert await ran(sandbox, ["printf", "%s|", "a b", "$HOME"]) == (0, "a b|$HOME|", "")
    assert await ran(sandbox, "[[ bash == b* ]] && echo yes") == (0, "yes\n", "")


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [(["nope"], 127, "nope: "), (["/etc/passwd"], 126, "/etc/passwd: "), ("kill -9 $$", 137, "")],
)
async def test_exit_codes_match_those_of_shell(sandbox, command, code, error):
    result = await sandbox.exec(command)
    assert (result.return_code, result.error_type) == (code, None)
    assert result.stderr.startswith(error)


async def test_local_sandbox_runs_on_this_machine():
    async with AsyncSandbox({"local": {"memory_mib": 512}}, SandboxSpec(files={"name": "Ada"})) as sandbox:
        assert await ran(sandbox, "cat name; uname -n") == (0, f"Ada{os.uname().nodename}\n", "")


async def test_missing_working_directory_is_named(sandbox):
    assert (await ran(sandbox, "true", cwd="nowhere"))[2] == "/workspace/nowhere: No such file or directory\n"


async def test_workspace_persists_between_commands(sandbox):
    await sandbox.exec("mkdir -p a && echo kept > a/file && echo scratch > /tmp/file")
    assert await ran(sandbox, "cat file /tmp/file", cwd="a") == (0, "kept\nscratch\n", "")


async def test_spec_sets_variables_files_and_workdir(provider, tmp_path):
    local = tmp_path / "local.txt"
    local.write_text("local")
    spec = SandboxSpec(
        workdir="/home/me/task",
        env={"COLOUR": "red", "SHAPE": "round"},
        files={"a/text": "text", "bytes": b"\x00\xff", "/tmp/local": local},
    )
    async with AsyncSandbox(provider, spec) as sandbox:
        assert (await sandbox.exec("pwd; echo $COLOUR $SHAPE", env={"SHAPE": "square"})).stdout == (
            "/home/me/task\nred square\n"
        )
        assert (await sandbox.exec("cat a/text /tmp/local; od -An -tx1 bytes")).stdout == "textlocal 00 ff\n"


async def test_middle_of_long_outputs_is_omitted(tmp_path):
    async with AsyncSandbox({"bubblewrap": {"output_bytes": 100, "workspaces": str(tmp_path)}}, {}) as sandbox:
        result = await sandbox.exec("echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo end")
    assert result.stdout.startswith("begin\n")
    assert result.stdout.endswith("x" * 40 + "end\n")
    assert "[… 999910 bytes left out …]" in result.stdout


async def test_timeout_kills_only_the_commands_processes(sandbox):
    await sandbox.exec("sleep 111 &")
    began = time.monotonic()
    result = await sandbox.exec("setsid sleep 222 & (sleep 333; :) & echo so far; sleep 444", timeout_s=4)
    assert time.monotonic() - began < PATIENCE_S
    assert (result.error_type, result.return_code, result.stdout) == ("timeout", 124, "so far\n")
    left = (await sandbox.exec(COMMANDS)).stdout
    assert "sleep 111" in left
    assert not [number for number in ("222", "333", "444") if f"sleep {number}" in left]


async def test_timeout_is_alias_of_timeout_s(sandbox):
    assert (await sandbox.exec("sleep 60", timeout=0.2)).error_type == "timeout"


async def test_cancelled_command_is_killed(sandbox):
    task = asyncio.create_task(sandbox.exec("sleep 555"))
    await until(lambda: lists(sandbox, "sleep 555"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: lists(sandbox, "sleep 555", is_gone=True))


async def test_only_the_sandbox_user_is_accepted(sandbox):
    assert (await sandbox.exec("whoami", user="root")).stdout == "sandbox\n"
    with pytest.raises(SandboxError, match="not 'postgres'"):
        await sandbox.exec("whoami", user="postgres")
