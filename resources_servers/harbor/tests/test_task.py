"""Reading task folders: values that are honoured, and keys and files that are refused by name."""

import base64
import json
import os
import re
from pathlib import Path

import pytest

from nemo_gym import DataError
from nemo_gym.data.made import why_outdated
from resources_servers.harbor.prepare import EXAMPLES, prepare
from resources_servers.harbor.task import read_task
from resources_servers.harbor.tests.folders import TOML, write_task
from resources_servers.harbor.toml import Unsupported
from resources_servers.harbor.tree import archive_of, read_archive
from tests.each_case import each_case

BASE = '[environment]\nnetwork_mode = "no-network"\nworkdir = "/app"\n'
REFUSED = {
    'docker_image = "ubuntu"': "environment.docker_image is not supported: only one sandbox runs",
    "gpus = 1": "environment.gpus is not supported: sandboxes have no GPU",
    'allowed_hosts = ["example.org"]': "environment.allowed_hosts is not supported",
    'skills_dir = "/skills"': "environment.skills_dir is not supported",
    'memory = "2G"': r"environment.memory is not supported: it is deprecated\. Write memory_mb",
    'os = "windows"': "environment.os = 'windows' is not supported",
    'env = {KEY = "${KEY}"}': r"environment.env.KEY = '\${KEY}' is not supported",
    "colour = 1": "the key environment.colour is unknown",
    '[[environment.mcp_servers]]\nname = "x"': "environment.mcp_servers is not supported",
    '[environment.healthcheck]\ncommand = "true"': "environment.healthcheck is not supported",
    '[agent]\nnetwork_mode = "allowlist"': "agent.network_mode = 'allowlist' is not supported",
    "[agent]\nuser = 0": "agent.user is not supported",
    "[verifier.environment]": "verifier.environment is not supported",
    '[verifier]\nenvironment_mode = "separate"': "verifier.environment_mode = 'separate' is not supported",
    "[verifier.environment]\ncpus = 1": "verifier.environment is not supported",
    '[[verifier.collect]]\ncommand = "true"': "verifier.collect is not supported",
    '[[steps]]\nname = "one"': "steps is not supported: only tasks of one step",
    "[extra]\nkey = 1": "the key extra is unknown",
}
MALFORMED = {
    "cpus = 0": "environment.cpus: Input should be greater than 0, found 0",
    'memory_mb = "many"': "environment.memory_mb: Input should be a valid integer, found 'many'",
    "[agent]\ntimeout_sec = -1": "agent.timeout_sec: Input should be greater than 0",
    "[verifier]\ntimeout_sec = inf": "verifier.timeout_sec: Input should be a finite number",
    "= 1": "Correct the TOML",
}
DOCKERFILES = {
    "FROM node:22": "node:22' is not supported: this machine's system is used instead of one image of",
    "FROM debian\nFROM debian": "FROM debian' is not supported",
    "FROM python:3 AS build": "AS build' is not supported",
    "WORKDIR /app": "FROM is missing",
    "FROM debian\nRUN apt-get \\\n  update": "'RUN apt-get    update' is not supported: only FROM, WORKDIR, COPY",
    "FROM debian\nWORKDIR /app\nCOPY --chown=1 start.txt .": "options, lists and here-documents are not read",
    "FROM debian\nWORKDIR $HOME": "variables, options",
    "FROM debian\nWORKDIR /app\nCOPY *.txt .": r"environment/\*\.txt does not exist",
    "FROM debian\nWORKDIR /app\nCOPY start.txt /etc/": "/etc/start.txt is not supported: only files below /app",
    "FROM debian\nWORKDIR /app\nCOPY 'start.txt .": "No closing quotation",
    "FROM debian\nCOPY start.txt /x": "the working folder '/' is not supported",
    "FROM debian\nWORKDIR /tests/x": "belongs to the system or to Harbor",
}


@each_case("case", REFUSED.items())
def test_unsupported_keys_are_refused_by_name(tmp_path: Path, case: tuple[str, str]) -> None:
    lines, problem = case
    with pytest.raises(Unsupported, match=f"task.toml: {problem}"):
        read_task(write_task(tmp_path, toml=BASE + lines))


@each_case("case", MALFORMED.items())
def test_malformed_values_are_errors(tmp_path: Path, case: tuple[str, str]) -> None:
    lines, problem = case
    with pytest.raises(DataError, match=problem) as error:
        read_task(write_task(tmp_path, toml=BASE + lines))
    assert not isinstance(error.value, Unsupported)


@each_case("case", DOCKERFILES.items())
def test_dockerfiles_that_need_an_image_are_refused(tmp_path: Path, case: tuple[str, str]) -> None:
    text, problem = case
    toml = '[environment]\nnetwork_mode = "no-network"\n'
    with pytest.raises(Unsupported, match=problem):
        read_task(write_task(tmp_path, toml=toml, files={"environment/Dockerfile": text}))


def test_public_network_is_refused_even_as_the_default(tmp_path: Path) -> None:
    problem = r"environment.network_mode = 'public' \(Harbor's default\) is not supported"
    for toml in ("", "[environment]\nallow_internet = true\n"):
        with pytest.raises(Unsupported, match=problem):
            read_task(write_task(tmp_path, toml=toml))
    assert read_task(write_task(tmp_path, toml='[environment]\nallow_internet = false\nworkdir = "/app"\n'))


def test_empty_values_and_old_names_are_accepted(tmp_path: Path) -> None:
    toml = (
        f'version = "1.0"\nsteps = []\nartifacts = []\n{BASE}gpus = 0\nmcp_servers = []\n[metadata]\nauthor = "Ada"\n'
    )
    assert read_task(write_task(tmp_path, toml=toml)).toml.schema_version == "1.0"


def test_limits_and_variables_are_read(tmp_path: Path) -> None:
    toml = BASE + "cpus = 2\nmemory_mb = 512\nstorage_mb = 2048\nenv = {A = 'b'}\n[agent]\ntimeout_sec = 30\n"
    folder = write_task(tmp_path / "one", toml=toml, files={"environment/Dockerfile": 'FROM debian:13\nENV C="d e"\n'})
    prepare(tmp_path / "rows.jsonl", str(folder))
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert row["sandbox"] == {
        "workdir": "/app", "env": {"A": "b", "C": "d e"}, "cpu": 2, "memory_mib": 512, "disk_gib": 2, "timeout_s": 30,
    }  # fmt: skip
    assert row["harbor"]["image"] == "debian:13"
    assert row["harbor"]["path"] == str(folder)


def test_copied_files_keep_places_and_modes(tmp_path: Path) -> None:
    dockerfile = """# syntax=docker/dockerfile:1
    FROM docker.io/library/ubuntu:24.04
    LABEL a="b"
    WORKDIR /app
    WORKDIR src
    COPY run.sh start.txt ./
    COPY data /app/src/deep/data
    COPY start.txt renamed.txt
    copy . whole/
    """
    files = {"environment/Dockerfile": dockerfile, "environment/run.sh": "#!/bin/sh\n", "environment/data/x/y": "z"}
    toml = '[environment]\nnetwork_mode = "no-network"\n'
    task = read_task(write_task(tmp_path, toml=toml, files=files))
    assert task.workdir == "/app/src"
    found = {name: entry.content for name, entry in task.files.items() if entry.content is not None}
    assert found == {
        "run.sh": b"#!/bin/sh\n", "start.txt": b"start\n", "deep/data/x/y": b"z", "renamed.txt": b"start\n",
        "whole/Dockerfile": dockerfile.encode(), "whole/run.sh": b"#!/bin/sh\n", "whole/start.txt": b"start\n",
        "whole/data/x/y": b"z",
    }  # fmt: skip
    assert (task.files["run.sh"].mode, task.files["start.txt"].mode) == (0o755, 0o644)
    assert read_archive(archive_of(task.files)).tree == task.files


@each_case("name", ["instruction.md", "tests/test.sh", "task.toml"])
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    (write_task(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=re.escape(name)):
        read_task(tmp_path)


@each_case(
    "name",
    ["trajectory.json", "environment/docker-compose.yaml", "environment/.dockerignore", "tests/deep/.harborignore"],
)
def test_files_with_a_meaning_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_task(tmp_path / name.replace("/", "_"), files={name: ""})
    with pytest.raises(Unsupported, match=re.escape(f"{name} is not supported")):
        read_task(folder)


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "task")
    os.symlink("start.txt", folder / "environment/inner")
    assert read_task(folder).files["inner"].target == "start.txt"
    os.symlink("../../../outer", folder / "environment/outer")
    with pytest.raises(DataError, match="environment/outer is a link that leads out"):
        read_task(folder)


def test_marks_of_benchmarks_are_removed_from_instructions(tmp_path: Path) -> None:
    text = "<!-- BENCHMARK canary 1 -->\n# canary 2\n\n# Title\n# canary stays\n"
    assert read_task(write_task(tmp_path, instruction=text)).instruction == "# Title\n# canary stays\n"


def test_each_file_changes_the_digest(tmp_path: Path) -> None:
    digests = {read_task(write_task(tmp_path)).digest}
    digests.add(read_task(write_task(tmp_path, files={"tests/more.txt": ""})).digest)
    (tmp_path / "tests/more.txt").chmod(0o755)
    digests |= {read_task(tmp_path).digest, read_task(tmp_path).digest}
    assert len(digests) == 3
    assert read_task(write_task(tmp_path, files={"tests/__pycache__/check.cpython-311.pyc": ""})).digest in digests


def test_playable_tasks_of_a_folder_are_chosen(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks/good")
    write_task(tmp_path / "tasks/bad", toml=TOML.format(timeout_s=1) + "gpus = 2")
    (tmp_path / "tasks/notes").mkdir()
    output = tmp_path / "rows.jsonl"
    with pytest.raises(DataError, match=r"1 of 2 tasks cannot be played here\. .*bad/task.toml: .* --split playable"):
        prepare(output, str(tmp_path / "tasks"))
    prepare(output, str(tmp_path / "tasks"), split="playable")
    assert [json.loads(line)["harbor"]["name"] for line in output.read_text().splitlines()] == ["good"]
    for place, problem in (
        ("tasks/bad", "gpus"),
        ("tasks/notes", "no|neither"),
        ("nowhere", "the folder does not exist"),
    ):
        with pytest.raises(DataError, match=problem):
            prepare(output, str(tmp_path / place), split="playable")
    with pytest.raises(DataError, match="--split test: folders of Harbor have no splits"):
        prepare(output, str(tmp_path / "tasks"), split="test")


def test_rows_of_changed_tasks_are_outdated(tmp_path: Path) -> None:
    folder, output = write_task(tmp_path / "task"), tmp_path / "rows.jsonl"
    prepare(output, str(folder))
    assert why_outdated(output, {}) is None
    (folder / "tests/test.sh").write_text("exit 1\n")
    assert "was made from an earlier version of" in (why_outdated(output, {}) or "")


def test_example_rows_are_those_of_the_folders(tmp_path: Path) -> None:
    prepare(tmp_path / "rows.jsonl")
    made = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    stored = [json.loads(line) for line in Path(EXAMPLES).parent.joinpath("example.jsonl").read_text().splitlines()]
    # Compressed bytes may differ between releases of zlib.
    archives = [
        [read_archive(base64.b64decode(row.pop("workspace_archive"))) for row in rows] for rows in (made, stored)
    ]
    assert archives[0] == archives[1]
    assert made == stored
