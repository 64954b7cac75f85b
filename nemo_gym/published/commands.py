"""The commands as functions, and the base class of a command's settings, under the names of the published package.

Like the command's script, each function reads `sys.argv`. It raises `SystemExit` if the exit code is not 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from pydantic import BaseModel, model_validator

HELP_KEYS = ("h", "help", "-h", "--help")


class BaseNeMoGymCLIConfig(BaseModel):
    """Settings of one command. If `h` or `help` is set, print the help page and exit."""

    @model_validator(mode="before")
    @classmethod
    def _print_help_on_request(cls, data: object) -> object:
        if isinstance(data, Mapping) and any(key in data for key in HELP_KEYS):
            print(cls.help_page())  # noqa: T201 - a page for the user
            sys.exit(0)
        return data

    @classmethod
    def help_page(cls) -> str:
        """Return one line per setting: its name, type, default and description."""
        lines = [f"{cls.__name__}: {(cls.__doc__ or '').strip()}", ""]
        for name, field in cls.model_fields.items():
            kind = getattr(field.annotation, "__name__", str(field.annotation))
            default = repr(field.get_default(call_default_factory=True))
            need = "required" if field.is_required() else f"default {default}"
            lines.append(f"  +{name}=…  {kind}, {need}{f'. {field.description}' if field.description else ''}")
        return "\n".join(lines)


def _command(script: str) -> Callable[[], None]:
    def run_command() -> None:
        # Imported here, because a folder that needs only the class must not load all commands.
        from nemo_gym.cli.main import main

        if code := main(sys.argv[1:], script):
            raise SystemExit(code)

    run_command.__name__ = script
    run_command.__doc__ = f"Run `{script}`."
    return run_command


run = _command("ng_run")
status = _command("ng_status")
test = _command("ng_test")
init_resources_server = _command("ng_init_resources_server")
dump_config = _command("ng_dump_config")
version = _command("ng_version")
collect_rollouts = _command("ng_collect_rollouts")
e2e_rollout_collection = _command("ng_e2e_collect_rollouts")
test_all = _command("ng_test_all")
pip_list = _command("ng_pip_list")
dev_test = _command("ng_dev_test")
reinstall = _command("ng_reinstall")
aggregate_rollouts = _command("ng_aggregate_rollouts")
reward_profile = _command("ng_reward_profile")
list_benchmarks = _command("ng_list_benchmarks")
prepare_benchmark = _command("ng_prepare_benchmark")
prepare_data = _command("ng_prepare_data")
materialize_prompts_cli = _command("ng_materialize_prompts")
