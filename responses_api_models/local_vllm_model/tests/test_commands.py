"""The command lines and environments of engines."""

from pathlib import Path

import pytest

from responses_api_models.local_vllm_model.commands import Place, command_of, environment_of
from tests.each_case import each_case

PLACE = Place("127.0.0.1", 12345, 1)
TEMPLATE = ["run", "{model}", "-p", "{port}", "-r", "{replica}"]
ADDRESS = ["--host", "127.0.0.1", "--port", "12345"]


def command(
    engine="vllm", model="Qwen/Qwen3-8B", served_name=None, folder=Path(), template=None, *, python=None, **args
):
    return command_of(
        engine, PLACE, model=model, served_name=served_name, args=args, folder=folder, template=template, python=python
    )


@each_case(
    ("engine", "words"),
    [
        ("vllm", ["vllm", "serve", "Qwen/Qwen3-8B"]),
        ("sglang", ["python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B"]),
        ("llama_cpp", ["llama-server", "--hf-repo", "Qwen/Qwen3-8B"]),
    ],
)
def test_each_engine_has_its_command(engine, words):
    assert command(engine) == [*words, *ADDRESS]


@each_case(
    ("engine", "words"),
    [
        ("vllm", ["vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen3-8B"]),
        ("sglang", ["sglang.launch_server", "--model-path", "Qwen/Qwen3-8B"]),
    ],
)
def test_interpreter_runs_the_engines_module(engine, words):
    python = Path("/venv/bin/python")
    assert command(engine, python=python) == [str(python), "-m", *words, *ADDRESS]
    assert environment_of({}, api_key="k", replica=0, gpus=None, python=python)["PATH"].startswith("/venv/bin:")


def test_file_is_loaded_by_path(tmp_path):
    (tmp_path / "model.gguf").touch()
    assert command("llama_cpp", "model.gguf", folder=tmp_path)[:3] == ["llama-server", "--model", "model.gguf"]


def test_served_name_is_the_engines_option():
    assert command(served_name="q")[-2:] == ["--served-model-name", "q"]
    assert command("llama_cpp", served_name="q")[-2:] == ["--alias", "q"]


def test_args_become_options():
    args = {"max-model-len": 8192, "enable_auto_tool_choice": True, "no": False, "unset": None, "-ngl": 99}
    further = {"lora-modules": ["a", "b"], "override": {"x": [1]}}
    assert command(**args, **further)[7:] == [
        *("--max-model-len", "8192", "--enable-auto-tool-choice", "-ngl", "99"),
        *("--lora-modules", "a", "b", "--override", '{"x":[1]}'),
    ]


@pytest.mark.parametrize(
    "template", ["run '{model}' -p {port} -r {replica}", ["run", "{model}", "-p", "{port}", "-r", "{replica}"]]
)
def test_template_replaces_the_command(template):
    assert command(template=template, served_name="q", x=1) == [
        *("run", "Qwen/Qwen3-8B", "-p", "12345", "-r", "1", "--x", "1"),
    ]


@pytest.mark.parametrize(("visible", "mine"), [("", "2,3"), ("4,5,6,7", "6,7")])
def test_each_replica_has_its_gpus(monkeypatch, visible, mine):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    environment = environment_of({"A": "1"}, api_key="k", replica=1, gpus=2)
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["A"]) == (mine, "1")
    assert environment["VLLM_API_KEY"] == environment["LLAMA_API_KEY"] == "k"
