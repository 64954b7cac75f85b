"""Tests of `ng eval show`, with the files of a real collection."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess

import orjson
import pytest

from nemo_gym.text import visible
from tests.conftest import PATIENCE_S, SCRIPTS

pytestmark = pytest.mark.slow

FUSSY = r'''
from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer, tool


class VerifyRequest(BaseVerifyRequest):
    number: int


class Fussy(SimpleResourcesServer):
    @tool
    async def look(self, place: str) -> str:
        """Look at a place."""
        return "\x1b[31mred\x1b[0m \u202eevil"

    async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
        if body.number == 1:
            raise ValueError("the grader fell over")
        return BaseVerifyResponse.grade(body, reward=body.number / 10, why=f"\x1b[31mnumber {body.number}")
'''
AGENT = """
fussy_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      max_steps: 2
      resources_server: {type: resources_servers, name: fussy}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
        - {name: example, type: example, jsonl_fpath: rows.jsonl}
"""
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Look",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    "strict": False,
}
TASKS, REPEATS, LONG = 4, 3, 10_000


@pytest.fixture(scope="module")
def collected(shared_workplace):
    """Collect rollouts of which one task's fail, and return the path of the results."""
    prompts = [f"task {number} \x1b]0;title\x07" + " long" * (LONG // 5) * (number == 3) for number in range(TASKS)]
    rows = [
        {"responses_create_params": {"input": prompt, "tools": [LOOK], "tool_choice": "required"}, "number": number}
        for number, prompt in enumerate(prompts)
    ]
    shared_workplace.write("rows.jsonl", "".join(orjson.dumps(row).decode() + "\n" for row in rows))
    shared_workplace.environment("fussy", FUSSY)
    shared_workplace.write("agent.yaml", AGENT)
    model = "responses_api_models/sample_model/configs/sample_model.yaml"
    files = f"resources_servers/fussy/configs/fussy.yaml,agent.yaml,{model}"
    finished = shared_workplace.run(
        "ng_e2e_collect_rollouts", f"+config_paths=[{files}]", "+split=example", "+output_jsonl_fpath=results/x.jsonl",
        f"+num_repeats={REPEATS}", "+max_attempts=2", "+retry_pause_s=0", "+head_server.port=0",
        "+disable_aggregation=true",
    )  # fmt: skip
    assert finished.code == 0, finished.err
    return shared_workplace.folder / "results/x.jsonl"


@pytest.fixture
def show(shared_workplace, collected):
    def run(*words, path=collected, **env):
        return shared_workplace.run("ng", "eval", "show", str(path), *words, **env)

    return run


@pytest.fixture
def copied(collected, tmp_path):
    """Copy the run, so that a test can change its files."""
    shutil.copytree(collected.parent, tmp_path / "results")
    return tmp_path / "results/x.jsonl"


def headings(finished):
    return re.findall(r"^── (\d+:\d+)  fussy_agent  (.*) ──$", finished.out, re.MULTILINE)


def keys(finished):
    return [key for key, _ in headings(finished)]


def test_first_rollouts_are_printed_with_a_hint(show, collected):
    finished = show()
    assert finished.code == 0
    assert keys(finished) == ["0:0", "0:1", "0:2", "1:0", "1:1"]
    assert finished.err.startswith(f"{collected}: printed 5 of 12 rollouts. Choose others with --task N, ")


def test_hint_counts_the_rollouts_that_match(show):
    for words in (["--failed"], ["--failed", "--where", "number == 1"], ["--best", "3"], ["--task", "1"]):
        finished = show(*words, "--limit", "2")
        assert len(keys(finished)) == 2
        assert "printed 2 of 3 rollouts. Choose others" in finished.err, finished.err


def test_rollout_is_printed_as_a_conversation(show, collected):
    finished = show("--task", "2", "--repeat", "1")
    assert finished.err == ""
    ((key, heading),) = headings(finished)
    assert (key, re.sub(r"[\d,]+", "N", heading)) == ("2:1", "reward N.N  N in + N out tokens")
    text = re.sub(r"\{\"place\":.*\}", "ARGUMENTS", finished.out)
    assert "\nwhy: \\x1b[31mnumber 2; the rollout ended with a tool call, without an answer\n" in text
    assert "\n[grading]" not in text
    assert "tools: look\n\n[user]\ntask 2 \\x1b]0;title\\x07\n\n" in text
    assert "[tool] look\nARGUMENTS\n→ \\x1b[31mred\\x1b[0m \\u202eevil\n" in text
    assert "\n[task]\nnumber: 2\n" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", finished.out)


def test_failure_is_printed_with_its_log(show, collected):
    finished = show("--failed", "--limit", "1")
    assert headings(finished) == [("1:0", "failed: environment_failed (environment fussy)")]
    _, _, failure = finished.out.partition("\n[failure] environment_failed (environment fussy)\n")
    message, log, *rest = failure.splitlines()
    assert "ValueError: the grader fell over" in message
    assert re.fullmatch(rf"log: {re.escape(str(collected.with_name('x_run')))}/logs/fussy\.log:\d+", log)
    assert rest == []
    assert "(rollout 1-0)\nTraceback (most" in show("--failed", "--limit", "1", "--full").out.partition(log)[2]


def test_log_outside_the_run_is_named_only(show, copied):
    shutil.rmtree(copied.with_name("x_run"))
    finished = show("--failed", "--limit", "1", "--full", path=copied)
    assert finished.out.endswith("\nlog: results/x_run/logs/fussy.log\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--task", "3"), ["3:0", "3:1", "3:2"]),
        (("--repeat", "2", "--limit", "9"), ["0:2", "1:2", "2:2", "3:2"]),
        (("--worst", "4"), ["0:0", "0:1", "0:2", "2:0"]),
        (("--best", "2"), ["3:0", "3:1"]),
        (("--best", "1", "--where", "number < 3"), ["2:0"]),
        (("--worst", "1", "--task", "2"), ["2:0"]),
        (("--where", "reward > 0.25"), ["3:0", "3:1", "3:2"]),
        (("--failed", "--where", "number == 1 and _ng_failure_tier == 'environment'"), ["1:0", "1:1", "1:2"]),
        (("--task", "1", "--repeat", "0", "--attempt", "0"), ["1:0"]),
    ],
)
def test_choice_selects_rollouts(show, words, expected):
    finished = show(*words)
    assert (finished.code, keys(finished)) == (0, expected)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--task", "9"), 1, "{}: there is no task 9. The tasks are 0 to 3."),
        (("--task", "2", "--repeat", "7"), 1, "{}: there is no repeat 7 of task 2. The repeats are 0 to 2."),
        (("--repeat", "7"), 1, "{}: there is no repeat 7. The repeats are 0 to 2."),
        (
            ("--task", "2", "--repeat", "0", "--attempt", "4"),
            1,
            "{}: rollout 2:0 has no attempt 4. Its attempts: 0.",
        ),
        (
            ("--attempt", "4"),
            2,
            "--attempt: the attempts belong to one rollout, so --task and --repeat are needed, too.",
        ),
        (("--worst", "1", "--best", "1"), 2, "--worst and --best: pass only one of them."),
        (("--worst", "1", "--failed"), 2, "--failed: failed rollouts have no reward, so"),
        (("--where", "reward <"), 2, "--where: 'reward <' is not a condition:"),
        (("--where", "rewart == 1"), 1, "{}: where: no rollout has the field rewart. Check the spelling."),
    ],
)
def test_impossible_choice_is_explained(show, collected, words, code, message):
    finished = show(*words)
    assert (finished.code, finished.out) == (code, "")
    assert finished.err.startswith(f"Error: {message.format(collected)}")


def test_no_fitting_rollout_is_reported(show, collected):
    assert show("--where", "reward > 5") == (
        0,
        "",
        f"{collected}: none of its 12 rollouts matches the given options.\n",
    )


def test_long_texts_are_cut_unless_full(show):
    cut = show("--task", "3", "--repeat", "0").out
    assert re.search(r"[long]… \d,\d+ more characters \(--full shows them\)\n", cut)
    full = show("--task", "3", "--repeat", "0", "--full").out
    assert " long" * (LONG // 5) in full
    assert "more characters" not in full


def test_json_prints_the_lines_of_the_files(show, collected):
    finished = show("--task", "2", "--json")
    lines = [line for line in collected.read_text().splitlines() if orjson.loads(line)["_ng_task_index"] == 2]
    assert sorted(finished.out.splitlines()) == sorted(lines)
    (failed,) = show("--task", "1", "--repeat", "0", "--json").out.splitlines()
    assert failed in collected.with_name("x_failures.jsonl").read_text().splitlines()


def test_unresolved_rollout_shows_its_prompt(show, copied):
    lines = copied.read_text().splitlines(keepends=True)
    copied.write_text("".join(line for line in lines if orjson.loads(line)["_ng_task_index"] != 2))
    finished = show("--task", "2", "--repeat", "0", path=copied)
    assert headings(finished) == [("2:0", "unresolved")]
    assert "[user]\ntask 2 " in finished.out


def test_torn_line_is_reported(show, copied):
    with copied.open("ab") as file:
        file.write(b'{"reward": 1.0, "respo')
        file.write(b"\n[1, 2]\n")
    finished = show("--worst", "1", path=copied)
    assert (finished.code, keys(finished)) == (0, ["0:0"])
    assert len([line for line in finished.err.splitlines() if line.startswith(f"warning: {copied}:")]) == 2


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n\0\0", b'{"a": 1}\n', b"[]\n"])
def test_file_of_another_program_is_reported(show, tmp_path, content):
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    finished = show(path=path)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith(f"Error: {path}: this is not a file of rollouts")
    assert finished.err.count("\n") == 1


def test_folder_must_have_one_run(show, collected, copied):
    assert keys(show("--best", "1", path=copied.parent)) == ["3:0"]
    shutil.copytree(copied.parent, copied.parent / "more")
    finished = show(path=copied.parent)
    assert finished.code == 1
    assert finished.err.startswith(f"Error: {copied.parent}: 2 runs are in this folder. Name one of them: ")


def test_closed_pipe_ends_quietly(shared_workplace, collected):
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [SCRIPTS / "ng", "eval", "show", collected, "--limit", "12", "--full"], env=shared_workplace.env,
        stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.parametrize(("env", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_terminal_gets_colours_unless_unwanted(shared_workplace, collected, env, has_colours):
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [SCRIPTS / "ng", "eval", "show", collected, "--task", "2", "--repeat", "0"],
        env=shared_workplace.env | {"TERM": "xterm-256color"} | env, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with os.fdopen(controller, "rb", buffering=0) as file:
        try:
            while chunk := file.read(1 << 16):
                shown += chunk
        except OSError:
            # The terminal is closed when the command has ended.
            pass
    assert process.wait(PATIENCE_S) == 0
    assert (b"\x1b[1;36m[user]" in shown) is has_colours
    assert rb"\x1b[31mred\x1b[0m \u202eevil" in shown
    assert b"\x1b[31mred" not in shown


def test_invisible_characters_become_visible():
    assert visible("a\tb\nc\r\nd\re") == "a\tb\nc\nd\\x0de"
    assert visible("\x1b\x00\x9b\u202e\u2066\ufeff\U000e0041\u200b") == (
        r"\x1b\x00\x9b\u202e\u2066\ufeff\U000e0041\u200b"
    )
    assert visible("日本語 👩\u200d🚀 עברית é") == "日本語 👩\u200d🚀 עברית é"
