"""Rollouts of Harbor tasks: rewards, failures without a reward, and agents that attack their grading."""

import base64
import gzip
import io
import random
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from nemo_gym import EnvironmentFailed, InvalidTask, OutOfTurn
from nemo_gym.sandbox import AsyncSandbox
from nemo_gym.testing import call, make_server, reply, rollout, serving
from resources_servers.harbor.app import HarborServer
from resources_servers.harbor.sandboxes import rewards_in
from resources_servers.harbor.tests.folders import ATTACK, IS_ATTACKED, TOML, row_of, write_task
from resources_servers.harbor.tree import MOST_BYTES, TreeError, read_archive
from tests.each_case import each_case

pytestmark = pytest.mark.needs_bubblewrap


def archive_with(*members):
    """Return an archive of (name, content or link target, attributes), written member by member as given."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content, about in members:
            member = tarfile.TarInfo(name)
            for key, value in about.items():
                setattr(member, key, value)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(target.getvalue()).decode()


def file(name, text="", mode=0o644):
    return name, text.encode(), {"mode": mode}


def link(name, to, kind=tarfile.SYMTYPE):
    return name, b"", {"type": kind, "linkname": to}


async def graded(row, archive=None, **settings):
    """Grade an archive, or doing nothing."""
    workspace = {} if archive is None else {"workspace": {"archive": archive}}
    async with rollout(make_server(HarborServer, **settings), **row) as attempt:
        return await attempt.verify(reply("Done."), **workspace)


async def test_tests_run_on_the_files_that_the_agent_left(tmp_path):
    condition = (
        '[ "$(./answer)" = 42 ] && [ ! -e start.txt ] && [ "$(pwd)$HOME" = /app/tmp ] && [ -d /logs/artifacts ]'
    )
    row = row_of(write_task(tmp_path / "task", condition))
    assert (await graded(row, archive_with(file("./answer", "#!/bin/sh\necho 42", 0o755)))).reward == 1.0
    assert (
        await graded(row, archive_with(file("answer", "#!/bin/sh\necho 42", 0o755), file("start.txt")))
    ).reward == 0.0
    assert (await graded(row)).reward == 0.0


async def test_variables_of_task_and_verifier_reach_the_tests(tmp_path):
    toml = TOML.format(timeout_s=60) + 'env = {A = "1", B = "1"}\n[verifier.env]\nB = "2"\n'
    toml = toml.replace("[verifier]\ntimeout_sec = 60\n", "")
    row = row_of(write_task(tmp_path / "task", '[ "$A$B" = 12 ]', toml=toml))
    assert (await graded(row)).reward == 1.0


async def test_commands_are_limited_and_need_a_session(tmp_path):
    row = row_of(write_task(tmp_path / "task"))
    server = make_server(HarborServer, command_timeout_s=0.5)
    async with rollout(server, **row) as attempt:
        assert await attempt.call("bash", command="sleep 600") == "\n[killed after 0.5 s]"
        assert "Invalid arguments for bash" in await attempt.send(call("bash", line="ls"))
    async with serving(make_server(HarborServer)) as client:
        with pytest.raises(OutOfTurn, match="POST /seed_session must begin a task first"):
            await client.post("/bash", json={"command": "ls"})


NO_REWARD = {
    "exit 0": "wrote neither /logs/verifier/reward.txt nor reward.json",
    "echo broken; exit 1": r"nor reward\.json\. Their last line: broken",
    "touch /logs/verifier/reward.txt": "reward.txt: it is empty",
    "echo 0.5 0.5 > /logs/verifier/reward.txt": "reward.txt: could not convert",
    "echo nan > /logs/verifier/reward.txt": "the reward 'reward' is nan",
    "echo 1 > /logs/verifier/reward.txt; echo '{' > /logs/verifier/reward.json": "reward.json: Expecting property",
    "echo '{\"score\": 1}' > /logs/verifier/reward.json": "wrote the rewards score, but not 'reward'",
    "head -c 9000 /dev/zero | tr '\\0' 1 > /logs/verifier/reward.txt": "it has more than 8192 characters",
    "ln -s /app /logs/verifier/reward.txt": "the reward cannot be read",
    "sleep 600": r"the tests did not end within 0\.5 s",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", NO_REWARD)
async def test_tests_without_a_reward_fail_the_rollout(tmp_path, script):
    timeout_s = 0.5 if "sleep" in script else 60
    row = row_of(write_task(tmp_path / "task", test=f"#!/bin/bash\n{script}\n", timeout_s=timeout_s))
    with pytest.raises(EnvironmentFailed, match=NO_REWARD[script]):
        await graded(row)


@each_case(
    "case", [("reward.txt", " 0.5\n"), ("reward.json", '{"reward": 0.5, "b": true}'), ("reward.json", '{"b": -1}')]
)
def test_rewards_are_read_as_harbor_reads_them(case):
    assert rewards_in(*case) in ({"reward": 0.5}, {"reward": 0.5, "b": 1.0}, {"b": -1.0})


UNREADABLE = ["", "[]", "1", '"1"', "{}", '{"reward": "1"}', '{"reward": null}', '{"reward": 1e999}', "{", "[" * 8000,
              f'{{"reward": 1{"0" * 400}}}', f'{{"reward": {"9" * 8000}}}']  # fmt: skip


@each_case("text", UNREADABLE)
def test_unreadable_rewards_are_errors(text):
    with pytest.raises((ValueError, OverflowError, RecursionError)):
        rewards_in("reward.json", text)


async def test_changed_or_missing_task_is_invalid(tmp_path):
    folder = write_task(tmp_path / "task")
    row = row_of(folder)
    (folder / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt")
    with pytest.raises(InvalidTask, match=r"has changed since the row was made\. Make the rows again"):
        await graded(row)
    folder.rename(tmp_path / "other")
    with pytest.raises(InvalidTask, match="was not found"):
        await graded(row)


async def test_agents_files_are_needed_and_readable(tmp_path):
    row = row_of(write_task(tmp_path / "task"))
    cut = base64.b64encode(gzip.compress(b"\0" * 1000)).decode()
    async with rollout(make_server(HarborServer), **row) as attempt:
        with pytest.raises(EnvironmentFailed, match=r"sent no workspace\.archive"):
            await attempt.verify(reply(""), workspace={"files": {}})
    for archive, problem in (
        ("?", "is not base64"),
        ("ä", "is not base64"),
        ("AAAA", "is not a tar.gz archive"),
        (cut[:20], "not a tar.gz"),
    ):
        with pytest.raises(EnvironmentFailed, match=problem):
            await graded(row, archive)


def test_huge_archives_are_not_unpacked():
    with pytest.raises(TreeError, match="it has more than 67108864 bytes or 20000 entries"):
        read_archive(gzip.compress(bytes(MOST_BYTES + 1), compresslevel=1))


def test_sparse_files_are_not_expanded():
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("sparse")
        member.pax_headers = {"GNU.sparse.size": str(2**50), "GNU.sparse.map": "0,0", "GNU.sparse.name": "sparse"}
        archive.addfile(member)
    with pytest.raises(TreeError, match="more than"):
        read_archive(target.getvalue())


def test_damaged_archives_are_errors():
    whole, seeded = gzip.decompress(base64.b64decode(archive_with(*ESCAPES, file("a" * 300, "x")))), random.Random(1)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(20):
            damaged[seeded.randrange(len(damaged))] = seeded.randrange(256)
        with suppress(TreeError):
            read_archive(gzip.compress(bytes(damaged), compresslevel=1))


ESCAPES = [
    file("../logs/verifier/reward.txt", "1"), file("/logs/verifier/reward.txt", "1"), file("..", "x"),
    link("abs", "/logs"), link("up", "../logs"), link("deep/up", "../../logs"), link("twice", "inner/../../logs"),
    link("pipe", "", tarfile.FIFOTYPE), link("device", "", tarfile.CHRTYPE), link("inner", "deep"),
    link("hard", "/etc/passwd", tarfile.LNKTYPE), file("inner/below", "x"),
]  # fmt: skip


def test_archives_cannot_lead_out_of_the_working_folder():
    kept = [file("deep/file", "x", 0o6777), link("same", "deep/file", tarfile.LNKTYPE), link("deep/ok", "../same")]
    read = read_archive(base64.b64decode(archive_with(*kept, *ESCAPES)))
    assert sorted(read.tree) == ["deep/file", "deep/ok", "inner", "same"]
    assert read.tree["deep/file"].mode == read.tree["same"].mode == 0o777
    assert len(read.withheld) == len(ESCAPES) - 1


PLANTED = [
    file("conftest.py"), file("deep/er/conftest.py"), file("sitecustomize.py"), file("usercustomize.py"),
    file("a.pth"), file("pytest.ini"), file(".bashrc"), file("tox.ini", "[pytest]"),
    file("pyproject.toml", "[tool.pytest]"),
    file("json.py", "raise SystemExit"), file("pytest/__init__.py"), file("__pycache__/module.cpython-311.pyc"),
    link("setup.cfg", "notes.cfg"), file("theirs/conftest.py", "changed"),
]  # fmt: skip
FINE = [file("module.py"), file("deep/json.py"), file("tests/test_it.py"), file("notes.cfg", "[tool.black]"),
        file("json/data.txt"), file("asked/conftest.py")]  # fmt: skip


async def test_files_that_steer_the_tests_are_withheld(tmp_path):
    instruction = "Write asked/conftest.py.\n"
    ours = {"environment/theirs/conftest.py": "original", "environment/theirs/pytest.ini": "original"}
    condition = '! grep -qr changed . && python3 -c "import json; json.loads(open(\\"module.py\\").read() or \\"1\\")"'
    folder = write_task(tmp_path / "task", condition, ours, instruction=instruction)
    folder.joinpath("instruction.md").write_text("Write asked.\n")
    result = await graded(row_of(folder), archive_with(*PLANTED, *FINE))
    assert result.reward == 1.0
    withheld = {name for name, *_ in PLANTED} | {"theirs/pytest.ini", "asked/conftest.py"}
    assert set(result.withheld) == withheld
    assert result.withheld["theirs/pytest.ini"].endswith("so it is the task's")
    folder.joinpath("instruction.md").write_text(instruction)
    result = await graded(row_of(folder), archive_with(file("asked/conftest.py"), file("pytest.ini")))
    assert set(result.withheld) == {"pytest.ini", "theirs/pytest.ini"}


async def test_odd_names_are_graded(tmp_path):
    row = row_of(write_task(tmp_path / "task", '[ "$(find . -type f -printf x)" = xxx ]'))
    archive = archive_with(file("\udcff.pth"), file("\udcff.txt"), file("-rf"), file("a\nb"))
    result = await graded(row, archive)
    assert (result.reward, set(result.withheld)) == (1.0, {"?.pth"})


async def test_links_do_not_replace_folders_of_the_task(tmp_path):
    ours = {"environment/theirs/conftest.py": "original", "environment/plain/pytest.ini": "original"}
    row = row_of(
        write_task(
            tmp_path / "task",
            'grep -q original theirs/conftest.py plain/pytest.ini && [ "$(stat -c %a x)" = 664 ]',
            ours,
        )
    )
    archive = archive_with(file("x", mode=0o664), file("other/y"), link("theirs", "other"), file("plain", "a file"))
    result = await graded(row, archive)
    assert result.reward == 1.0
    assert set(result.withheld) == {"theirs", "theirs/conftest.py", "plain", "plain/pytest.ini"}


async def test_attacks_with_bash_earn_nothing(tmp_path):
    row = row_of(write_task(tmp_path / "task", f"[ -s solved.txt ] || {IS_ATTACKED}"))
    async with rollout(make_server(HarborServer), **row) as attempt:
        await attempt.call("bash", command=ATTACK)
        result = await attempt.verify(reply("Done."))
    assert result.reward == 0.0
    assert set(result.withheld) == {"logs", "root", "pipe", ".bashrc", "sitecustomize.py", "conftest.py"}
    assert result.workspace["archive"]


async def test_nothing_of_the_verifier_reaches_the_agent(tmp_path):
    row = row_of(write_task(tmp_path / "task", files={"solution/solve.sh": "#!/bin/sh\n"}))
    async with rollout(make_server(HarborServer), **row) as attempt:
        assert await attempt.call("bash", command="ls -A /app /logs /tests /solution; ls /tmp") == (
            "/app:\nstart.txt\n\n/logs:\n\n/solution:\n\n/tests:\n"
        )
        assert await attempt.call("bash", command=f"cat {Path(tmp_path, 'task/tests/test.sh')} >/dev/null 2>&1") == (
            "\n[exit code 1]"
        )


async def test_lost_sandbox_fails_the_rollout(tmp_path):
    row = row_of(write_task(tmp_path / "task"))
    server = make_server(HarborServer)
    async with rollout(server, **row) as attempt:
        await attempt.call("bash", command="true")
        await server.provider.aclose()
        with pytest.raises(EnvironmentFailed, match=r"was lost, or agent\.timeout_sec has passed"):
            await attempt.call("bash", command="true")


async def test_sandbox_ends_with_the_time_of_the_agent(tmp_path):
    row = row_of(write_task(tmp_path / "task", toml=TOML.format(timeout_s=60) + "[agent]\ntimeout_sec = 0.5\n"))
    async with rollout(make_server(HarborServer), **row) as attempt:
        # On a slow machine, the time has passed before the command starts.
        with pytest.raises(EnvironmentFailed, match=r"the sandbox of task (was lost, or agent|failed)"):
            await attempt.call("bash", command="sleep 600")


async def test_sandboxes_are_removed(tmp_path):
    row = row_of(write_task(tmp_path / "task"))
    server = make_server(HarborServer)
    async with rollout(server, **row) as attempt:
        await attempt.call("bash", command="sleep 600 &")
        await attempt.verify(reply("Done."))
    assert server.provider._sandboxes == {}
    async with AsyncSandbox(server.provider, {}) as sandbox:
        assert (await sandbox.exec("true")).return_code == 0
