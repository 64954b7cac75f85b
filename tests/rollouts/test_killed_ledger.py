"""Collections that are killed at random moments: their ledger agrees with their files after each kill and resume."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from nemo_gym.jsonl import write_rows
from nemo_gym.rollouts.control.calling import NotListening, ask_run
from nemo_gym.rollouts.control.control import Refused
from nemo_gym.rollouts.job import RunFiles
from tests.conftest import PATIENCE_S, SCRIPTS
from tests.rollouts.ledger_agreement import compared, expect_agreement
from tests.waiting import until
from tests.warm_command import answer, begin

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("NEMO_GYM_TEST_SEED", "7"))
TASKS, REPEATS = 24, 3
BEHAVIORS = (
    *({"act": "ok"} for _ in range(4)),
    {"act": "fail_until", "until": 1, "failure_class": "lost"},
    {"act": "fail_until", "until": 2, "failure_class": "overloaded"},
    {"act": "fail_until", "until": 99, "failure_class": "invalid_task"},
    {"act": "fail_until", "until": 99, "failure_class": "environment_failed"},
    {"act": "crash"},
    {"act": "discard_second"},
    {"act": "held"},
)
"""What a task does: it is scored, fails, is discarded, or does not end before `release`."""
MOST_BYTES = {"ledger": 60_000, "results": 60_000, "failures": 30_000, "materialized": 40_000}
"""For each watched file, the bytes that it grows by at most before the kill."""


class Session:
    """A process that collects the rollouts of an output, or resumes them."""

    def __init__(self, address: str, folder: Path, log: Path, *settings: str) -> None:
        words = ["run", "--no-serve", "--input", "tasks.jsonl", "-o", "x.jsonl", "--resume", *settings]
        with open(os.devnull, "rb") as nothing, log.open("wb") as out:
            streams = [nothing.fileno(), out.fileno(), out.fileno()]
            argv = [str(SCRIPTS / "ng"), "eval", *words]
            self._service = begin(address, streams, argv=argv, cwd=str(folder), env=dict(os.environ))
        self._service.settimeout(PATIENCE_S)
        self.pid = answer(self._service, "pid")
        self._process = os.pidfd_open(self.pid)

    def has_ended(self) -> bool:
        try:
            signal.pidfd_send_signal(self._process, 0)
        except ProcessLookupError:
            return True
        return False

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def code(self) -> int:
        """Wait for the end, and return the exit code."""
        with self._service:
            code = answer(self._service, "code")
        os.close(self._process)
        return code


class KilledRun:
    """A run in a folder of its own, whose sessions are killed at random moments."""

    def __init__(self, folder: Path, chance: random.Random, agent, warm_commands, make_task) -> None:
        folder.mkdir()
        self.folder, self._chance, self._agent, self._address = folder, chance, agent, warm_commands.address
        self.files = RunFiles(results=folder / "x.jsonl")
        self.has_groups = chance.random() < 0.3
        text = "x" * chance.choice([0, 300, 3000, 30_000])
        graded = [{**each, "act": "ungraded"} if each["act"] == "ok" else each for each in BEHAVIORS]
        behaviors = graded if self.has_groups else BEHAVIORS
        rows = [make_task(n, text=text, **chance.choice(behaviors)) for n in range(TASKS)]
        write_rows(folder / "tasks.jsonl", rows)
        self._settings = (
            "+head_server.host=127.0.0.1", f"+head_server.port={agent.port}",
            f"+agent_name={'team' if self.has_groups else 'sound'}", f"+num_repeats={REPEATS}", "+max_attempts=20",
            "+retry_pause_s=0", f"--concurrency={chance.choice([1, 3, 50])}", "+disable_aggregation=true",
        )  # fmt: skip

    def start(self) -> Session:
        return Session(self._address, self.folder, self.folder / "x.log", *self._settings)

    def kill_session(self) -> bool:
        """Start a session and kill it at a random moment. Return False if it ended by itself before that."""
        session = self.start()
        if self._chance.random() < 0.6:
            self._agent.release()
            self._wait_for_growth(session)
        else:
            self._agent.begin_again()
            self._steer(session)
        session.kill()
        code = session.code()
        assert code in (0, -signal.SIGKILL), self.log
        return code == -signal.SIGKILL

    def _wait_for_growth(self, session: Session) -> None:
        """Wait until a file has grown by a random number of bytes."""
        name = self._chance.choice(list(MOST_BYTES))
        path = getattr(self.files, name)
        wanted = _size(path) + self._chance.randrange(MOST_BYTES[name])
        until(lambda: _size(path) >= wanted or session.has_ended(), pause_s=0)

    def _steer(self, session: Session) -> None:
        """Send random requests, while some rollouts are held."""
        verbs = self._chance.choices(["pause", "resume", "requeue", "cancel"], k=self._chance.randrange(9))
        for verb in verbs:
            arguments = {"task": self._chance.randrange(TASKS)} if verb == "cancel" else {}
            until(lambda: session.has_ended() or self._is_answered(verb, arguments))  # noqa: B023

    def _is_answered(self, verb: str, arguments: dict[str, int]) -> bool:
        try:
            ask_run(self.files.results, verb, **arguments)
        except NotListening:
            return False
        except Refused:
            # All rollouts have ended, or those of a group cannot be requeued.
            return True
        return True

    @property
    def log(self) -> str:
        return (self.folder / "x.log").read_text()

    def check(self) -> None:
        """Check the files of a killed session. Only the row that it has just written may lack an event."""
        found = compared(self.files.results)
        assert found.problems == []
        assert len(found.eventless) <= 1
        assert found.unresolved >= 0

    def end(self) -> None:
        """Resume the run to its end, and check its files."""
        self._agent.release()
        session = self.start()
        assert session.code() == 0, self.log
        found = expect_agreement(self.files.results)
        assert found.planned == TASKS * REPEATS
        assert f"{found.planned} planned = {found.scored} scored" in self.log
        assert f"+ {found.failed.total()} failed" in self.log
        assert f"+ {found.unresolved} unresolved" in self.log


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


@pytest.mark.parametrize("moments", [
    20,
    pytest.param(200, marks=pytest.mark.stands_on("nemo_gym/rollouts/", "nemo_gym/jsonl.py")),
])  # fmt: skip
def test_killed_run_and_its_ledger_agree(tmp_path, agent, warm_commands, make_task, moments):
    print(f"NEMO_GYM_TEST_SEED={SEED}")  # noqa: T201 - pytest shows it if the test fails
    chance = random.Random(SEED)
    killed = 0
    number = 0
    while killed < moments:
        number += 1
        run = KilledRun(tmp_path / str(number), chance, agent, warm_commands, make_task)
        for _ in range(chance.randint(1, 8)):
            if not run.kill_session():
                break
            killed += 1
            run.check()
        run.end()
