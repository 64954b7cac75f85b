"""Shell commands, ready to paste, that collect one rollout of a run again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from nemo_gym.config.masking import MASK
from nemo_gym.config.run_settings import TOP_LEVEL_KEYS
from nemo_gym.rollouts.job import EndToEndJob, RunFiles
from nemo_gym.rollouts.run_record import RunRecord
from nemo_gym.viewer.index.place import Place

END_TO_END = ("eval", "run")
SCRIPT = "ng_e2e_collect_rollouts"
NO_SERVE = "--no-serve"
SERVER_FLAGS = {
    "--config", "--benchmark", "--environment", "--resources-server", "--model-type", "--search-dir",
    "--restart-limit", "--model-endpoint-readiness-timeout-seconds", "--policy-base-url", "--policy-api-key",
    "--policy-model-name",
}  # fmt: skip
"""The flags that select the servers, or change how they start."""
WITHOUT_VALUE = {"--auto-install"}


def rerun_of(
    record: RunRecord | None, files: RunFiles, planned: Place | None, media_dir: str | None = None
) -> str | None:
    """Return shell commands that collect one rollout again with the run's servers, or None if this is impossible.

    The commands use the planned row, which has the rollout's prompt, sampling parameters and agent. `media_dir` is the
    folder of the images and sounds that the row refers to.
    """
    if record is None or planned is None or record.regraded is not None:
        return None
    words = _words_of(record.command)
    if words is None:
        return None
    if NO_SERVE in words or os.path.basename(record.command[0]) == "ng_collect_rollouts":
        hint, command = "# Start the servers of this run first.", "ng_collect_rollouts"
    else:
        command = shlex.join(["ng", *END_TO_END, *_server_words(words)])
        hint = "# Replace each **** by its value." if MASK in command else ""
    name, materialized = f"task_{planned.key.task}_repeat_{planned.key.repeat}", files.materialized.resolve()
    # Write the row into the media folder, because the paths of images and sounds are relative to the row's file.
    rows = shlex.quote(os.path.join(media_dir or "", f"{name}.jsonl"))
    cut_out = f"sed -n {planned.line}p {shlex.quote(str(materialized))} > {rows}"
    collect = f"{command} --input {rows} --output {name}_again.jsonl --num-repeats 1"
    return "\n".join(filter(None, (hint, cut_out, collect)))


def _words_of(command: Sequence[str]) -> list[str] | None:
    """Return the arguments of a command that collects rollouts, or None for any other command."""
    if not command:
        return None
    program, *words = command
    if os.path.basename(program) in (SCRIPT, "ng_collect_rollouts"):
        return words
    at = next((at for at in range(len(words) - 1) if tuple(words[at : at + 2]) == END_TO_END), None)
    return None if at is None else words[at + 2 :]


def _server_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the arguments that name or override configs, without the arguments of the collection."""
    rest = iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if flag in WITHOUT_VALUE:
            yield word
        elif flag in SERVER_FLAGS or (flag.startswith("--") and _is_of_config(flag)):
            yield word
            if not equals and (value := next(rest, None)) is not None:
                yield value
        elif word.startswith(("+", "~")) and _key_of(word) not in EndToEndJob.model_fields:
            yield word


def _is_of_config(flag: str) -> bool:
    key = flag.removeprefix("--").replace("-", "_").partition(".")[0]
    return key not in EndToEndJob.model_fields and ("." in flag or key in TOP_LEVEL_KEYS)


def _key_of(word: str) -> str:
    return word.lstrip("+~").partition("=")[0].partition(".")[0]
