"""What an installed package offers as entry points: commands, launchers and exporters."""

import os

import pytest

OFFERED = """
from nemo_gym.cli.commands import Command
from nemo_gym.data.exporters import Exporter, ExportFailed
from nemo_gym.launcher.local import launch

GREET = Command("greet", "world", "", "offering.plugin:greet", "Greet the world")

def greet(words):
    print("hello", *words)
    return 3

def launch_nearby(run, **options):
    print("launching", *run.servers)
    return launch(run, **options)

def send(shipment, settings):
    if settings["journal_file"] == "full":
        raise ExportFailed("the disk is full")
    with open(settings["journal_file"], "w") as file:
        file.write(f"{len(shipment.rollouts())} rollouts, {sorted(shipment.metrics)[0]}")

JOURNAL = Exporter(send, ("journal_file",))
"""
POINTS = """
[nemo_gym.commands]
greet = offering.plugin:GREET
[nemo_gym.launchers]
nearby = offering.plugin:launch_nearby
broken = offering.plugin:absent
[nemo_gym.exporters]
journal = offering.plugin:JOURNAL
"""
RUN = (
    "--resources-server", "example_multi_step", "--model-type", "sample_model", "--split", "example",
    "--output", "out.jsonl", "--head_server.port", "0",
)  # fmt: skip


@pytest.fixture
def offering(workplace):
    """A function that runs a command in an environment in which the package is installed."""
    workplace.write("site/offering/__init__.py", "")
    workplace.write("site/offering/plugin.py", OFFERED)
    workplace.write("site/offering-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    workplace.write("site/offering-1.0.dist-info/entry_points.txt", POINTS)
    found = os.pathsep.join(filter(None, [str(workplace.folder / "site"), os.environ.get("PYTHONPATH")]))
    return lambda *words: workplace.run("ng", *words, PYTHONPATH=found)


def test_command_is_run_and_listed(offering):
    finished = offering("greet", "world", "again")
    assert (finished.code, finished.out) == (3, "hello again\n")
    assert "ng greet world" in offering("--help").out
    misspelt = offering("gret", "world")
    assert (misspelt.code, "Did you mean 'greet'?" in misspelt.err) == (2, True)


def test_commands_that_cannot_be_imported_are_left_out(workplace, offering):
    workplace.write(
        "site/offering-1.0.dist-info/entry_points.txt", "[nemo_gym.commands]\ngreet = offering.plugin:NO\n"
    )
    finished = offering("--help")
    assert (finished.code, "ng eval run" in finished.out) == (0, True)
    assert finished.err.startswith("warning: 'greet' (nemo_gym.commands) cannot be imported from offering.plugin:NO: ")
    assert finished.err.endswith("Correct or uninstall offering.\n")


@pytest.mark.slow
def test_launcher_starts_the_servers_and_exporter_gets_the_run(workplace, offering):
    workplace.write("env.yaml", "journal_file: journal.txt\n")
    finished = offering("eval", "run", *RUN, "--launcher", "nearby")
    assert finished.code == 0, finished.err
    assert "launching example_multi_step " in finished.out
    assert (workplace.folder / "journal.txt").read_text().startswith("5 rollouts, example_multi_step_simple_agent/")
    workplace.write("env.yaml", "journal_file: full\n")
    failed = offering("eval", "run", *RUN, "--overwrite")
    assert (failed.code, "note: export to journal failed: the disk is full" in failed.err) == (0, True)


@pytest.mark.parametrize(
    ("launcher", "problem"),
    [
        ("neraby", "launcher: there is no launcher 'neraby'. Did you mean 'nearby'?"),
        ("broken", "'broken' (nemo_gym.launchers) cannot be imported from offering.plugin:absent: AttributeError"),
    ],
)
def test_launcher_that_cannot_be_used_is_explained(offering, launcher, problem):
    finished = offering("env", "start", *RUN[:4], "--launcher", launcher)
    assert finished.code == 1
    assert finished.err.startswith(f"Error: {problem}")
    assert "Traceback" not in finished.err
