"""The README of a new environment or benchmark, and the next steps to print after its creation."""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import NamedTuple

from nemo_gym.cli.init import TEMPLATES
from nemo_gym.cli.init.wanted import Profile, Wanted

README = TEMPLATES / "environment_readme.md"


class Guide(NamedTuple):
    """The instructions for the author of a new folder: the README, and the next steps to print."""

    readme: str
    next_steps: str


class _Task(NamedTuple):
    """The README's texts about the tasks."""

    title: str
    about: str
    graded: str
    data: str
    files: tuple[tuple[str, str], ...]


_MADE = _Task(
    title="put cities into alphabetical order",
    about="The prompt lists cities. The model answers with a line that has all of them in alphabetical order.",
    graded="The list after the last `Answer:` must have exactly the cities of the prompt. The reward depends on the\n"
    "share of cities in the right place.",
    data="`data/example.jsonl` has five rows of our own (licence: write yours here). `prepare.py` makes "
    "`data/train.jsonl` and\n`data/validation.jsonl` when they are needed. They have no row in common.",
    files=(
        ("{server}/app.py", "the server: how an answer is graded"),
        ("prepare.py", "makes the rows"),
        ("oracle.py", "a perfect answer to each row, which `ng env check` sends"),
    ),
)
_REUSED = _Task(
    title="tasks for {server}",
    about="Tasks of our own. The server in `{server}` grades them.",
    graded="As `{server}` grades its own rows; see its README.",
    data="`data/example.jsonl` begins with the example rows of `{server}`. Replace them with your own, and\n"
    "write their licence here.",
    files=(),
)
_REUSED_BENCHMARK = _REUSED._replace(
    data="`tasks.jsonl` begins with the example rows of `{server}`. Replace them with your own, and write\n"
    "their licence here. `prepare.py` turns them into the rows of the benchmark.",
    files=(("tasks.jsonl", "the tasks"), ("prepare.py", "turns the tasks into rows")),
)
_QUESTIONS = _Task(
    title="questions with a number as their answer",
    about="Short questions. The model ends its answer with a line that has nothing but a number.",
    graded="The answer after the last `Answer:` earns 1 if it is the expected number, else 0; see `{server}`.",
    data="`questions.csv` has questions of our own (licence: write yours here). `prepare.py` turns them into the rows "
    "of the\nbenchmark. Metric: accuracy, the share of right answers, over one repeat.",
    files=(
        ("questions.csv", "the questions"),
        ("prepare.py", "turns the questions into rows, or downloads a file"),
        ("prompts/default.yaml", "the prompt; `{{question}}` and the other fields of a row may be used"),
    ),
)
_FILES_OF: dict[Profile, tuple[tuple[str, str], ...]] = {
    "custom-gym-verifier": (),
    "custom-gym-agent-loop": (("{agent}/app.py", "the agent: how model and tools take turns"),),
    "external-agent-loop": (
        ("{agent}/app.py", "the agent: starts the program, and takes its output as the answer"),
        ("{agent}/program.py", "the program, to be replaced by yours; it knows only the address of the model"),
    ),
    "external-rollout-driver": (("driver.py", "runs the rollouts itself, while `ng_run` keeps the servers up"),),
}
_COMMON = (
    ("config.yaml", "the server, the agent and the datasets"),
    ("manifest.yaml", "the description; `ng env check` compares all rewards with its `reward`"),
    ("data/example.jsonl", "five rows"),
    ("tests/", "the tests"),
)


def guide_to(wanted: Wanted, spelled: Callable[[str], str], *, has_oracle: bool) -> Guide:
    """Return the README and the next steps. Both leave out the command `ng env check` if there is no oracle.

    In the next steps, `spelled` turns the name of each program into the command for it. The README has plain names.
    """
    task, names = _task_of(wanted), {"server": wanted.server, "agent": f"responses_api_agents/{wanted.name}"}
    files = [*task.files, *_FILES_OF[wanted.profile], *_COMMON]
    rows = [f"| `{name.format(**names)}` | {meaning.format(**names)} |" for name, meaning in files]
    readme = Template(README.read_text("utf-8")).substitute(
        name=wanted.name,
        title=task.title.format(**names),
        about=task.about.format(**names),
        graded=task.graded.format(**names),
        reward=_reward(wanted),
        data=task.data.format(**names),
        schema=f"ng env schema {wanted.name}",
        commands="\n\n".join(_block(_commands(wanted, str, has_oracle=has_oracle))),
        files="\n".join(["| file | |", "|---|---|", *rows]),
    )
    beginning = f"{wanted.place} has been created. Run its tests, and score its rows with a random policy:"
    ending = f"Then make it your own: {wanted.place}/README.md lists the files."
    commands = _block(_commands(wanted, spelled, has_oracle=has_oracle))
    return Guide(readme, "\n".join([beginning, "", *commands, "", ending]))


def _task_of(wanted: Wanted) -> _Task:
    if wanted.kind == "benchmark":
        return _REUSED_BENCHMARK if wanted.verifier else _QUESTIONS
    return _REUSED if wanted.verifier else _MADE


def _reward(wanted: Wanted) -> str:
    better = f"A {'higher' if wanted.higher_is_better else 'lower'} reward is better."
    if wanted.declared_range is None:
        return better
    low, high = wanted.declared_range
    return f"The reward is between {low:g} and {high:g}. {better}"


def _block(commands: list[str]) -> list[str]:
    return [f"    {command}" for command in commands]


def _commands(wanted: Wanted, spelled: Callable[[str], str], *, has_oracle: bool) -> list[str]:
    place, name = wanted.place, wanted.name
    run = f"--{wanted.kind} {name} --model-type sample_model"
    split = " --split example" if wanted.kind == "environment" else ""
    commands = [f"{spelled('ng')} env test --{wanted.kind} {name}"]
    if has_oracle:
        commands.append(f"{spelled('ng')} env check --{wanted.kind} {name}")
    commands.append(f"{spelled('ng')} eval run {run}{split} --output results/{name}.jsonl")
    if wanted.profile == "external-rollout-driver":
        commands.append(f"{spelled('ng_run')} {run}")
        commands.append(f"{spelled('python')} {place}/driver.py --output results/{name}_driven.jsonl")
    return commands
