"""Play the samples of a task of Inspect. This file runs in the interpreter that has inspect_ai, without nemo_gym.

Each line of the input and of the output is a JSON object. The first line of the input has the settings. The output
begins with `{"ready": …}`, or with `{"unusable": message}`. The task is loaded once. For each sample, a process is
forked, so that no fault and no blocking call of a sample reaches another one.
"""

import asyncio
import contextlib
import copy
import json
import math
import os
import random
import select
import signal
import sys
import tempfile
import time
from importlib import import_module

BEAT_S, A_DAY_S = 2.0, 86_400.0
CHUNK, ID_BYTES = 65_536, 100
IMPORTED = (
    "anyio._backends._asyncio",
    "inspect_ai.agent._acp.server",
    "inspect_ai.model._providers.openai_compatible",
)
"""Modules that Inspect imports on their first use. Each player would otherwise import them again."""
EXIT_S = 1.0
"""Seconds for a player to exit after it has closed its output."""
NUMBERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Scores of Inspect that are letters or words."""
LATE = ("time", "working", "operator")
"""Limits that the machine's speed or a person sets, so a sample that reaches one fails."""


def load(settings):
    """Return the task. Raise `ValueError` if it cannot be played here."""
    from inspect_ai._eval.loader import load_tasks
    from inspect_ai._util.registry import registry_params

    # Inspect looks for a file without @TASK only below the working folder.
    address = settings["task"] if "@" in settings["task"] else settings["task"].removeprefix(f"{os.getcwd()}/")
    tasks = load_tasks([address], settings["args"])
    if len(tasks) != 1:
        names = ", ".join(task.name for task in tasks) or "none"
        raise ValueError(f"{settings['task']} has {len(tasks)} tasks ({names}). Write FILE.py@TASK for one of them")
    (task,) = tasks
    if unknown := settings["args"].keys() - registry_params(task).keys():
        raise ValueError(f"the task {task.name} does not have the argument {', '.join(sorted(unknown))}")
    boxes = [task.sandbox, *(each.sandbox for each in task.dataset)]
    if other := {each.type for each in boxes if each} - {"local"}:
        raise ValueError(
            f"the task {task.name} runs in the sandbox {', '.join(sorted(other))}, which is not started here. Only "
            "tasks without a sandbox, or with sandbox='local', can be played"
        )
    if not task.scorer:
        raise ValueError(f"the task {task.name} lacks a scorer, so its samples cannot have a reward")
    for name in () if settings["list"] else IMPORTED:
        with contextlib.suppress(ImportError):
            import_module(name)
    return task


def rows_of(task):
    """Yield the samples of a task: the messages for people to read, and the data for `play`."""
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser

    for number, sample in enumerate(task.dataset, start=1):
        data = sample.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        data.setdefault("id", number)
        if isinstance(data["input"], list):
            # Inspect makes new ids each time, and a row must not change.
            data["input"] = [{name: value for name, value in each.items() if name != "id"} for each in data["input"]]
        if Sample.model_validate(data).metadata != sample.metadata:
            raise ValueError(f"the metadata of sample {data['id']} cannot be written as JSON")
        given = sample.input if isinstance(sample.input, list) else [ChatMessageUser(content=sample.input)]
        yield {"messages": _messages(given), "sample": data}


def play(task, settings, asked):
    """Play a sample and return its record, in the form that `episode.py` reads."""
    from inspect_ai import eval as evaluate
    from inspect_ai import task_with
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import get_model
    from inspect_ai.util import SandboxEnvironmentSpec

    # Forked processes would otherwise draw the same numbers.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    try:
        given = dict(asked["sample"])
        if given.get("sandbox"):
            given["sandbox"] = SandboxEnvironmentSpec(**given["sandbox"])
        sample = Sample.model_validate(given)
        if sample.sandbox and sample.sandbox.type != "local":
            raise ValueError(f"its sandbox {sample.sandbox.type} is not started here")
    except (TypeError, ValueError) as error:
        return {"invalid": f"its `sample` is not one of this task: {error}"}

    def model_at(url, name):
        # The model server repeats failed calls, so this client must not. The agent ends samples that take too long.
        own = {"base_url": url, "api_key": "none", "memoize": False, "max_retries": 0, "client_timeout": A_DAY_S}
        return get_model(f"openai-api/nemo-gym/{name}", **own)

    turns = {} if task.turn_limit or task.message_limit else {"turn_limit": settings["max_turns"]}
    with tempfile.TemporaryDirectory(dir=settings["folder"]) as logs:
        (log,) = evaluate(
            task_with(copy.copy(task), dataset=MemoryDataset([sample])),
            model=model_at(asked["base_url"], asked["model"]),
            model_roles={role: model_at(url, role) for role, url in asked.get("roles", {}).items()},
            epochs=1, display="none", log_dir=logs, log_realtime=False, log_level="error", ctl_server=False,
            fail_on_error=False, score_display=False, max_retries=0, **turns, **asked["sampling"],
        )  # fmt: skip
        # Inspect reads the samples from the file of the log on their first use.
        return {"episode": record_of(task.name, log, settings["score"])}


def record_of(name, log, wanted):
    """Return the record of a log with one sample. `wanted` is SCORER or SCORER.KEY, or None for the first scorer."""
    from pydantic_core import to_jsonable_python

    if not log.samples:
        message = log.error.message if log.error else "no sample was played"
        return {"env": name, "ok": False, "errors": [{"type": "EvalError", "message": message}], "traces": []}
    sample = log.samples[0]
    scores = sample.scores or {}
    stop = sample.output.stop_reason if sample.output.choices else None
    rewards, errors = {}, []
    if sample.error is not None:
        errors = [{"type": "SampleError", "message": sample.error.message}]
    elif sample.limit is not None and sample.limit.type in LATE:
        errors = [{"type": "TimeoutError", "message": f"the limit {sample.limit.type} ended the sample"}]
    else:
        try:
            chosen, reward = reward_of(scores, wanted)
            rewards = {chosen: [reward, 1.0]}
        except ValueError as error:
            errors = [{"type": "Unscored", "message": str(error)}]
    numbers = {key: number_of(value) for key, value in values_of(scores)}
    said = [
        {"message": message, "sampled": each.role == "assistant" and each.source == "generate"}
        for each, message in zip(sample.messages, _messages(sample.messages), strict=True)
    ]
    kept = {name: each.model_dump(exclude_none=True, exclude={"history"}) for name, each in scores.items()}
    trace = {
        "agent": "policy", "trainable": True, "ok": not errors, "errors": errors, "rewards": rewards,
        "metrics": {key: number for key, number in numbers.items() if number is not None and key not in rewards},
        "stop_condition": sample.limit.type if sample.limit else stop,
        "is_truncated": sample.limit is not None or stop in ("max_tokens", "model_length"),
        "info": to_jsonable_python(kept, fallback=str, inf_nan_mode="null"),
        "nodes": said, "branches": [{"nodes": list(range(len(said))), "trainable": True}],
        "tools": _tools(sample.events),
    }  # fmt: skip
    return {"env": name, "ok": not errors, "errors": [], "traces": [trace]}


def values_of(scores):
    """Yield the values of all scores: as SCORER, or as SCORER.KEY of a score with several."""
    for name, score in scores.items():
        if isinstance(score.value, dict):
            yield from ((f"{name}.{key}", value) for key, value in score.value.items())
        else:
            yield name, score.value


def reward_of(scores, wanted):
    """Return the name and the number of the score that is the reward. Raise `ValueError` if it is not a number."""
    if not scores:
        raise ValueError("no scorer has scored the sample")
    values = dict(values_of(scores))
    first = next(iter(scores))
    name = wanted or first
    if name not in values:
        problem = f"'{name}' is not a score of this sample" if wanted else f"the score '{name}' has several values"
        raise ValueError(f"{problem}. Set `score` to one of {', '.join(values)}")
    if (number := number_of(values[name])) is None:
        reason = scores.get(name, scores[first]).reason
        raise ValueError(f"the score '{name}' is {values[name]!r}{f' ({reason})' if reason else ''}, not a number")
    return name, number


def number_of(value):
    """Return a score as a number. Return None for other texts, for lists and for NaN, Inspect's sign of no score."""
    if isinstance(value, str):
        value = NUMBERS.get(value, NUMBERS.get(value.lower(), value))
        with contextlib.suppress(ValueError):
            value = float(value)
    is_number = isinstance(value, bool | int | float) and math.isfinite(value)
    return float(value) if is_number else None


def _tools(events):
    """Return the tools of the last model call that had some."""
    calls = (event.tools for event in reversed(events) if event.event == "model")
    return [
        {"type": "function", **each.model_dump(mode="json", exclude_none=True)}
        for each in next(filter(None, calls), ())
    ]


def _messages(messages):
    """Return messages of Inspect in the form of Chat Completions."""
    from inspect_ai.model import messages_to_openai

    async def converted():
        return [{**(await messages_to_openai([each]))[0], **_said(each)} for each in messages]

    return asyncio.run(converted())


def _said(message):
    """Return the text and the reasoning of an answer. Inspect would write the reasoning into the text."""
    if message.role != "assistant":
        return {}
    parts = message.content if isinstance(message.content, list) else []
    thought = "\n".join(part.reasoning for part in parts if part.type == "reasoning" and not part.redacted)
    text = message.text or (None if message.tool_calls else "")
    return {"content": text, **({"reasoning_content": thought} if thought else {})}


class Server:
    """The processes that play, and the lines of this process's input and output."""

    def __init__(self, output):
        self.output = output
        self.given = b""
        self.playing = {}
        """The id, the process and the record so far of each sample, by the pipe that its record comes through."""

    def send(self, message):
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        while line:
            line = line[os.write(self.output, line) :]

    def lines(self):
        """Read the input once and return the lines that have ended. Return None at its end."""
        if not (chunk := os.read(0, CHUNK)):
            return None
        *lines, self.given = (self.given + chunk).split(b"\n")
        return lines

    def serve(self, play, most_bytes, lines):
        """Play the samples that are asked for, `lines` first, until the input ends."""
        beaten = time.monotonic()
        try:
            while lines is not None:
                for line in lines:
                    self.take(json.loads(line), play)
                ready, _, _ = select.select([0, *self.playing], [], [], BEAT_S)
                if time.monotonic() - beaten >= BEAT_S:
                    self.send({"beat": True})
                    beaten = time.monotonic()
                for pipe in ready:
                    if pipe:
                        self.read(pipe, most_bytes)
                lines = self.lines() if 0 in ready else []
        finally:
            for pipe in list(self.playing):
                self.end(pipe)

    def take(self, message, play):
        if "cancel" in message:
            for pipe, (key, _, _) in list(self.playing.items()):
                if key == message["cancel"]:
                    self.end(pipe)
            return
        reading, writing = os.pipe()
        if (process := os.fork()) == 0:
            os.close(reading)
            self.be_a_player(writing, lambda: play(message["run"]))
        os.close(writing)
        self.playing[reading] = (message["id"], process, bytearray())

    def be_a_player(self, writing, play):
        """Play in this new process, and end it."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            os.close(self.output)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                answer = json.dumps(play(), allow_nan=False)
            except Exception as error:  # noqa: BLE001 - the worker reports it
                answer = json.dumps({"failed": f"{type(error).__name__}: {error}"})
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer.encode())
        finally:
            os._exit(0)

    def read(self, pipe, most_bytes):
        """Read a part of a record, and hand the record on when its process has ended."""
        key, _, record = self.playing[pipe]
        chunk = os.read(pipe, CHUNK)
        record += chunk
        if chunk and len(record) < most_bytes - ID_BYTES:
            return
        # Without a record, the status is the reason, so it is waited for.
        status = self.end(pipe, 0.0 if record else EXIT_S)
        problem = f"its process ended with exit code {os.waitstatus_to_exitcode(status)}"
        answer = {}
        if chunk:
            problem = f"its record has more bytes than the limit of {most_bytes:,}"
        elif record:
            problem = "its process ended before its record was complete"
            with contextlib.suppress(ValueError):
                answer = json.loads(bytes(record))
        self.send({"id": key, **(answer or {"failed": problem})})

    def end(self, pipe, patience_s=0.0):
        """End a player with all programs of its session, and return its status."""
        _, process, _ = self.playing.pop(pipe)
        os.close(pipe)
        deadline = time.monotonic() + patience_s
        while not (ended := os.waitpid(process, os.WNOHANG))[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        if ended[0]:
            return ended[1]
        os.kill(process, signal.SIGKILL)
        return os.waitpid(process, 0)[1]


def serve(output, folder, load, rows_of, play):
    """Serve with these three functions until the input ends. Files of samples are in `folder`."""
    server = Server(output)
    while not (lines := server.lines()):
        if lines is None:
            return
    settings = json.loads(lines[0]) | {"folder": folder}
    try:
        task = load(settings)
        for row in rows_of(task) if settings["list"] else ():
            server.send({"row": row})
    except Exception as error:  # noqa: BLE001 - any error of a task is the reason why it cannot be used
        server.send({"unusable": f"{type(error).__name__}: {error}"})
        return
    server.send({"ready": os.getpid()})
    if not settings["list"]:
        server.serve(lambda asked: play(task, settings, asked), settings["most_bytes"], lines[1:])


def main(load, rows_of, play):
    """Serve with these functions on this process's input and output."""
    # A task's own output must not be taken for a message, so what it prints goes to stderr.
    messages = os.dup(1)
    os.dup2(2, 1)
    # Modules are found in the working folder, and not next to this file.
    sys.path[0] = os.getcwd()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    folder = tempfile.TemporaryDirectory(prefix="nemo_gym-inspect-", ignore_cleanup_errors=True)
    with folder as path, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(messages, path, load, rows_of, play)


if __name__ == "__main__":
    main(load, rows_of, play)
