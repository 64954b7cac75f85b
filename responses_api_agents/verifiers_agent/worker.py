"""Run the episodes of one verifiers taskset, as the process that `link.py` starts.

This file runs with an interpreter that has the package `verifiers`, so it imports only that package and the standard
library. Each line of its input and output is a JSON object. The first line of the input has the settings. The output
begins with `{"ready": …}`, or with `{"unusable": message}`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from itertools import islice

BEAT_S = 2.0
SEAT_DEFAULTS = {"runtime": {"type": "subprocess"}}
NO_KEY = "NEMO_GYM_VERIFIERS_NEEDS_NO_KEY"
"""The name of an environment variable that is not set: the model's address needs no key."""


def config_of(settings):
    """Return the environment's config. Seats run on this machine, and by default cannot execute code."""
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.utils.loaders import default_harness_id, env_config_type, resolve_env_config, taskset_config_type

    given, taskset = dict(settings["env"]), {**settings["taskset"]}
    if settings["split"] is not None:
        if "split" not in taskset_config_type(taskset["id"]).model_fields:
            raise ValueError(f"the taskset {taskset['id']} does not have a setting `split`. Leave out --split")
        taskset["split"] = settings["split"]
    for name, field in env_config_type(taskset["id"], given.get("id") or "").model_fields.items():
        if not isinstance(declared := field.default, AgentConfig):
            continue
        defaults = {**SEAT_DEFAULTS, "max_turns": settings["max_turns"]}
        if declared.harness is None and default_harness_id(taskset["id"]) == "bash":
            defaults["harness"] = {"id": "null"}
        own = {key: value for key, value in defaults.items() if key not in declared.model_fields_set}
        given[name] = {**own, **given.get(name, {})}
    return resolve_env_config({**given, "taskset": taskset})


def rows_of(config, most):
    """Yield the tasks of a taskset: the messages for people to read, and the data for the environment."""
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.utils.loaders import load_taskset

    taskset = load_taskset(config.taskset)
    for task in islice(taskset, most if taskset.INFINITE else None):
        data = task.data
        prompt = data.prompt or []
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt)
        system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        # As for verifiers' own server, a task travels as its data, so every field must be in it.
        if hidden := [name for name, field in type(data).model_fields.items() if field.exclude]:
            raise ValueError(f"{type(data).__name__} leaves {', '.join(hidden)} out of its data, so it cannot be sent")
        # Only the task's own fields: those of messages in it are needed, even if they have their default.
        unset = {name for name, field in type(data).model_fields.items() if getattr(data, name) == field.default}
        dumped = data.model_dump(mode="json", serialize_as_any=True, exclude=unset)
        yield {"messages": [*system, *messages], "task": dumped}


class Player:
    """An environment that plays episodes, each in a task of its own."""

    def __init__(self, config):
        from verifiers.v1.utils.loaders import load_environment

        self.env = load_environment(config)
        self.task_type = type(self.env.taskset).task_type()

    async def play(self, asked):
        """Play one episode and return its record."""
        from verifiers.v1.clients import ModelContext
        from verifiers.v1.configs.client import EvalClientConfig
        from verifiers.v1.types import SamplingConfig

        try:
            data = self.task_type.data_type().model_validate(asked["task"])
        except ValueError as error:
            return {"invalid": f"its `task` is not a task of this taskset: {error}"}
        (slot,) = self.env.slots(self.task_type(data, self.env.config.taskset.task))
        client = EvalClientConfig(base_url=asked["base_url"], api_key_var=NO_KEY)
        sampling = SamplingConfig.model_validate(asked["sampling"])
        episode = await self.env.run_slot(slot, ModelContext(client=client, model=asked["model"], sampling=sampling))
        return {"episode": record_of(episode)}


def record_of(episode):
    """Return the record of an episode, in the form that `episode.py` reads."""
    return {
        "env": episode.env.id,
        "ok": episode.ok,
        "errors": [_error(each) for each in episode.errors],
        "traces": [_trace(trace) for trace in episode.traces],
    }


def _trace(trace):
    from pydantic_core import to_jsonable_python
    from verifiers.v1.dialects.chat import message_to_wire

    number_of = {id(node): number for number, node in enumerate(trace.nodes)}
    return {
        "agent": trace.agent.name,
        "trainable": trace.agent.trainable,
        "ok": trace.ok,
        "stop_condition": trace.stop_condition,
        "is_truncated": trace.is_truncated,
        "errors": [_error(each) for each in trace.errors],
        "rewards": {name: None if each is None else [each.score, each.weight] for name, each in trace.rewards.items()},
        "metrics": trace.metrics,
        "info": to_jsonable_python(trace.info, fallback=str, inf_nan_mode="null"),
        "nodes": [{"message": message_to_wire(node.message), "sampled": node.sampled} for node in trace.nodes],
        "branches": [
            {"nodes": [number_of[id(node)] for node in branch.nodes], "trainable": branch.trainable}
            for branch in trace.branches
        ],
        "tools": [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in trace.tools
        ],
    }


def _error(error):
    return {"type": error.type, "message": error.message}


class Lines:
    """The lines of this process's input and output."""

    def __init__(self, reader, writer, most_bytes):
        self.reader, self.writer, self.most_bytes = reader, writer, most_bytes

    @classmethod
    async def open(cls, output):
        """Open both pipes, and return them with the settings in the first line of the input."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=2**30)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
        # A drained writer has written everything, so nothing is lost when this process ends.
        transport.set_write_buffer_limits(high=0)
        settings = json.loads(await reader.readline())
        return cls(reader, asyncio.StreamWriter(transport, protocol, None, loop), settings["most_bytes"]), settings

    async def send(self, message):
        try:
            line = json.dumps(message, allow_nan=False).encode()
            problem = f"its record has {len(line):,} bytes, and the limit is {self.most_bytes:,}"
        except ValueError as error:
            line, problem = None, f"its record is not valid JSON: {error}"
        if line is None or len(line) >= self.most_bytes:
            line = json.dumps({"id": message.get("id"), "failed": problem}).encode()
        self.writer.write(line + b"\n")
        await self.writer.drain()


async def serve(lines, player):
    """Play the episodes that are asked for, until the input ends."""
    playing = {}

    async def answer(key, asked):
        try:
            await lines.send({"id": key, **await player.play(asked)})
        except Exception as error:  # noqa: BLE001 - one episode's error must not end the others
            await lines.send({"id": key, "failed": f"{type(error).__name__}: {error}"})
        finally:
            playing.pop(key, None)

    async with player.env.serving():
        await lines.send({"ready": os.getpid()})
        beating = asyncio.create_task(beat(lines))
        try:
            while line := await lines.reader.readline():
                message = json.loads(line)
                if "cancel" in message:
                    if (task := playing.get(message["cancel"])) is not None:
                        task.cancel()
                else:
                    playing[message["id"]] = asyncio.create_task(answer(message["id"], message["run"]))
        finally:
            ended = [beating, *playing.values()]
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)


async def beat(lines):
    """Send a line every few seconds, because a process without them hangs."""
    while True:
        await asyncio.sleep(BEAT_S)
        await lines.send({"beat": True})


async def main(output):
    lines, settings = await Lines.open(output)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    try:
        config = config_of(settings)
        if settings["list"]:
            for row in rows_of(config, settings["list"]):
                await lines.send({"row": row})
            await lines.send({"ready": os.getpid()})
            return
        player = Player(config)
    except Exception as error:  # noqa: BLE001 - any error of a taskset is the reason why it cannot be used
        await lines.send({"unusable": f"{type(error).__name__}: {error}"})
        return
    await serve(lines, player)


if __name__ == "__main__":
    # A taskset's own output must not be taken for a message, so what it prints goes to stderr.
    messages = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    # Modules are found in the working folder, and not next to this file.
    sys.path[0] = os.getcwd()
    with contextlib.suppress(asyncio.CancelledError, BrokenPipeError, ConnectionResetError):
        asyncio.run(main(messages))
