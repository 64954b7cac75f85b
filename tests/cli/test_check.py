"""`ng_check`: an environment is checked by acting in it."""

import subprocess
import sysconfig
from pathlib import Path

NG = Path(sysconfig.get_path("scripts")) / "ng"


def check(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NG, "env", "check", *words], capture_output=True, text=True, check=False, timeout=60)


def test_a_shipped_environment_keeps_all_promises() -> None:
    done = check("+entrypoint=resources_servers/example_session_state_mgmt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("resources_servers/example_session_state_mgmt: 10 of 10 promises kept\n")
    assert "✓  the oracle earns the full reward" in done.stdout


def test_rows_that_the_oracle_cannot_solve_are_a_broken_promise(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"responses_create_params": {"input": "x"}, "initial_count": 1}\n')
    done = check("+entrypoint=resources_servers/example_session_state_mgmt", f"+rows_jsonl_fpath={rows}")
    assert done.returncode == 1
    assert "✗  the oracle earns the full reward" in done.stdout
    assert "KeyError: 'expected_count'" in done.stdout


def test_an_unknown_folder_is_told() -> None:
    done = check("+entrypoint=resources_servers/nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Error: entrypoint=resources_servers/nowhere: no folder with an app.py or a requirements.txt in "
    )
