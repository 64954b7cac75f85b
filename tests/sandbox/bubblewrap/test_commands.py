"""Commands in a sandbox of bubblewrap: how they run, what they are given, and how they end."""

import asyncio
import time

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxError, SandboxSpec
from tests.sandbox.bubblewrap.watching import COMMANDS, lists, ran, until

pytestmark = pytest.mark.needs_bubblewrap


async def test_a_command_line_and_a_program_with_arguments_both_run(sandbox):
    assert await ran(sandbox, "echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert await ran(sandbox, ["printf", "%s|", "a b", "$HOME"]) == (0, "a b|$HOME|", "")
    assert await ran(sandbox, "[[ bash == b* ]] && echo yes") == (0, "yes\n", "")


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [(["nope"], 127, "nope: "), (["/etc/passwd"], 126, "/etc/passwd: "), ("kill -9 $$", 137, "")],
)
async def test_what_cannot_be_run_and_what_is_killed_ends_as_in_a_shell(sandbox, command, code, told):
    result = await sandbox.exec(command)
    assert (result.return_code, result.error_type) == (code, None)
    assert result.stderr.startswith(told)


async def test_a_folder_that_is_not_there_is_named(sandbox):
    assert (await ran(sandbox, "true", cwd="nowhere"))[2] == "/workspace/nowhere: No such file or directory\n"


async def test_the_workspace_and_the_files_in_it_last_from_command_to_command(sandbox):
    await sandbox.exec("mkdir -p a && echo kept > a/file && echo scratch > /tmp/file")
    assert await ran(sandbox, "cat file /tmp/file", cwd="a") == (0, "kept\nscratch\n", "")


async def test_the_spec_gives_variables_files_and_the_place_to_work_in(provider, tmp_path):
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


async def test_long_outputs_lose_their_middle(tmp_path):
    async with AsyncSandbox({"bubblewrap": {"output_bytes": 100, "workspaces": str(tmp_path)}}) as sandbox:
        result = await sandbox.exec("echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo end")
    assert result.stdout.startswith("begin\n")
    assert result.stdout.endswith("x" * 40 + "end\n")
    assert "[… 999910 bytes left out …]" in result.stdout


async def test_a_timeout_ends_all_that_the_command_started_and_nothing_else(sandbox):
    await sandbox.exec("sleep 111 &")
    began = time.monotonic()
    result = await sandbox.exec("setsid sleep 222 & (sleep 333; :) & echo so far; sleep 444", timeout_s=0.5)
    assert time.monotonic() - began < 10
    assert (result.error_type, result.return_code, result.stdout) == ("timeout", 124, "so far\n")
    left = (await sandbox.exec(COMMANDS)).stdout
    assert "sleep 111" in left
    assert not [number for number in ("222", "333", "444") if f"sleep {number}" in left]


async def test_timeout_is_another_name_of_timeout_s(sandbox):
    assert (await sandbox.exec("sleep 60", timeout=0.2)).error_type == "timeout"


async def test_a_command_that_is_given_up_is_ended(sandbox):
    task = asyncio.create_task(sandbox.exec("sleep 555"))
    await until(lambda: lists(sandbox, "sleep 555"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: lists(sandbox, "sleep 555", not_any_more=True))


async def test_the_one_user_may_be_asked_for_and_no_other(sandbox):
    assert (await sandbox.exec("whoami", user="root")).stdout == "sandbox\n"
    with pytest.raises(SandboxError, match="no 'postgres'"):
        await sandbox.exec("whoami", user="postgres")
