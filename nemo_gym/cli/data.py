"""Commands that check and collate datasets, render prompts and prepare benchmarks."""

from __future__ import annotations

from nemo_gym import paths
from nemo_gym.cli import printing
from nemo_gym.cli.options import Options, settings_from
from nemo_gym.cli.settings import PrepareBenchmarkSettings
from nemo_gym.config.view import set_view, view_of
from nemo_gym.config.without_model import load_without_model
from nemo_gym.contract.offered_tools import tools_by_agent
from nemo_gym.data.benchmarks import benchmarks_of, prepare_all
from nemo_gym.data.obtain import Obtainer
from nemo_gym.data.prepare import OWN_FILES, PreparationSettings, prepare
from nemo_gym.data.prompts import MaterializePromptsConfig, load_prompt_config, materialize_prompts
from nemo_gym.errors import UserError
from nemo_gym.jsonl import read_raw_lines
from nemo_gym.text import counted


def collate(words: list[str]) -> int:
    """Check the datasets of a config's agents, compute their metrics, and collate the datasets by type."""
    return _collate("ng dataset collate", words, writes_next_to_data=False)


def prepare_data(words: list[str]) -> int:
    """Collate datasets as `collate` does, but write the metrics and the prepared rows of each dataset next to it."""
    return _collate("ng_prepare_data", words, writes_next_to_data=True)


def _collate(program: str, words: list[str], *, writes_next_to_data: bool) -> int:
    place = "next to the dataset" if writes_next_to_data else f"to {OWN_FILES}/ in the output folder"
    summary = (
        "Check, measure and collate the datasets of a config's agents. The metrics and the prepared rows of each\n"
        f"dataset are written {place}."
    )
    line = Options(program, PreparationSettings, summary).read(words)
    run = load_without_model(line.paths, line.overrides)
    settings = settings_from(PreparationSettings, run.plain)
    obtainer = Obtainer(run, printing.note, may_download=settings.should_download, hub=settings.data_source)
    for made in prepare(
        run,
        settings,
        obtainer.path_of,
        remade=obtainer.remade,
        writes_next_to_data=writes_next_to_data,
        tools_of=lambda agents: tools_by_agent(run, agents if settings.tools else [], printing.note),
    ):
        sources = ", ".join(map(str, made.datasets))
        printing.say(
            f"{made.type}: {counted(made.rows, 'row')} in {made.path} (metrics: {made.metrics.name}), from {sources}"
        )
    return 0


def render(words: list[str]) -> int:
    """Write the rows of a file to another file, with a prompt's messages as the input of each row."""
    summary = "Write a file's rows with a prompt's messages as their input."
    options = Options("ng_materialize_prompts", MaterializePromptsConfig, summary, takes_config=False)
    settings = options.settings(words)
    prompt = load_prompt_config(settings.prompt_config)
    count = materialize_prompts(settings.input_jsonl_fpath, prompt, settings.output_jsonl_fpath)
    printing.say(f"{counted(count, 'row')}: {settings.output_jsonl_fpath}")
    return 0


def prepare_benchmark(words: list[str]) -> int:
    """Prepare the data of every benchmark in a configuration."""
    line = Options("ng_prepare_benchmark", PrepareBenchmarkSettings, usual_selector="--benchmark").read(words)
    run = load_without_model(line.paths, line.overrides)
    # Share the loaded config with the prepare scripts, which read it, for example in `get_hf_token`. The scripts
    # cannot load the config themselves, because it lacks a model.
    set_view(view_of(run))
    settings = settings_from(PrepareBenchmarkSettings, run.plain)
    owed = []
    for benchmark in benchmarks_of(run):
        there = paths.find(benchmark.dataset.jsonl_fpath) if settings.use_cached_prepared_benchmarks else None
        if there is None:
            owed.append(benchmark)
        else:
            printing.say(f"{benchmark.name}: {there} (exists already)")
    processes = settings.num_prepare_benchmark_processes
    arguments = settings.prepare_script_args | ({"skip_bad": True} if settings.skip_bad else {})
    made = prepare_all(owed, arguments, processes=processes, notice=printing.note)
    code = 0
    for benchmark, outcome in zip(owed, made, strict=True):
        if isinstance(outcome, UserError):
            printing.note(f"Error: benchmark '{benchmark.name}': {outcome}")
            code = 1
        else:
            rows = counted(sum(1 for _ in read_raw_lines(outcome)), "row")
            printing.say(f"prepared '{benchmark.name}': {rows} in {outcome}")
    return code
