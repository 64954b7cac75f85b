"""What is wrong with settings, told in the user's words."""

from __future__ import annotations

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.config import Origin, check_settings, explain_validation
from nemo_gym.config.settings import BaseResourcesServerConfig, ModelServerRef, ResourcesServerRef

BLOCK = "w.resources_servers.weather"


class Judge(BaseModel):
    prompt: str = ""
    max_concurrency: int = 64


class Params(BaseModel):
    model_config = ConfigDict(extra="allow")
    temperature: float | None = None


class Settings(BaseResourcesServerConfig):
    temperature: float = 0.0
    top_p: float = 1.0
    api_key: int = 0
    token: str = ""
    judge: Judge | None = None
    params: Params = Field(default_factory=Params)
    ref: ModelServerRef | ResourcesServerRef | None = None
    server: ResourcesServerRef | None = None
    sizes: list[int] = Field(default_factory=list)


def problems(**settings):
    lines: dict[str, Origin] = {"": Origin("a.yaml", 1)}
    for line, (key, value) in enumerate(settings.items(), start=2):
        lines[key] = Origin("a.yaml", line)
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        lines |= {f"{key}.{name}": Origin("a.yaml", line) for name, _ in inner}
    return check_settings(Settings, settings, block=BLOCK, origins=lines)


@pytest.mark.parametrize(
    "settings",
    [
        {"entrypoint": "app.py"},
        {"entrypoint": "app.py", "verified": True, "verified_url": "x", "description": "x", "value": "x"},
        {"entrypoint": "app.py", "license": "MIT", "domain": "math", "datasets": [], "something": {"else": 1}},
        {"entrypoint": "app.py", "top_k": 3},
        {"entrypoint": "app.py", "temperature": 1, "temperatures": 2},  # a field that is set is not meant
        {"entrypoint": "app.py", "params": {"temperatur": 1}},
        {"entrypoint": "app.py", "host": "x", "port": 3, "name": "w"},
    ],
)
def test_settings_with_nothing_wrong_and_the_metadata_of_published_blocks_pass(settings):
    assert problems(**settings) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temprature": 1}, ["a.yaml:3: {}.temprature: there is no such setting. Did you mean 'temperature'?"]),
        (
            {"judge": {"max_concurency": 1}},
            ["a.yaml:3: {}.judge.max_concurency: there is no such setting. Did you mean 'max_concurrency'?"],
        ),
        ({"temperature": "hot"}, ["a.yaml:3: {}.temperature: it has to be a valid number, and is 'hot'."]),
        ({"sizes": [1, "x"]}, ["a.yaml:3: {}.sizes.1: it has to be a valid integer, and is 'x'."]),
        ({"temperature": [1]}, ["a.yaml:3: {}.temperature: it has to be a valid number, and is a list."]),
        ({"api_key": "s3cret"}, ["a.yaml:3: {}.api_key: it has to be a valid integer, and is ****."]),
        ({"token": 123}, ["a.yaml:3: {}.token: it has to be a valid string, and is ****; put it in quotes."]),
        ({"token": None}, ["a.yaml:3: {}.token: it has to be a valid string, and is empty."]),
        (
            {"ref": {"type": "model", "name": "x"}},
            [
                "a.yaml:3: {}.ref.type: it has to be 'responses_api_models', and is 'model'; or it has to be "
                "'resources_servers', and is 'model'."
            ],
        ),
        ({"ref": {"type": "resources_servers"}}, None),
        (
            {"server": "w2"},
            ["a.yaml:3: {}.server: it has to be {{type: resources_servers, name: w2}}, and is 'w2'."],
        ),
        (
            {"ref": "w2"},
            [
                "a.yaml:3: {}.ref: it has to be {{type: responses_api_models, name: w2}}, and is 'w2'; or it has to "
                "be {{type: resources_servers, name: w2}}, and is 'w2'."
            ],
        ),
        ({"judge": 1}, ["a.yaml:3: {}.judge: it has to be a mapping, and is 1."]),
    ],
)
def test_each_mistake_is_one_line_with_its_place(settings, told):
    found = problems(entrypoint="app.py", **settings)
    if told is None:
        assert any(".ref.name: it is missing" in line for line in found)
    else:
        assert found == [line.format(BLOCK) for line in told]


def test_a_missing_setting_is_told_once_with_the_key_that_was_probably_meant_for_it():
    assert problems(entrypont="app.py") == [
        f"a.yaml:1: {BLOCK}.entrypoint: it is missing; is 'entrypont' meant for it?"
    ]


def test_a_setting_that_is_not_allowed_is_told_with_a_suggestion():
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        limit: int = 0

    with pytest.raises(pydantic.ValidationError) as refused:
        Strict.model_validate({"limt": 3})
    text = explain_validation(
        refused.value, block="collect", origins={"limt": Origin("command line: +limt=3", 0)}, known=["limit"]
    )
    assert text == "command line: +limt=3: collect.limt: there is no such setting. Did you mean 'limit'?"


def test_a_misspelt_override_of_a_field_that_the_yaml_shows_at_its_default_is_told():
    assert problems(entrypoint="app.py", temperature=0.0, temperatur=1.0) == [
        f"a.yaml:4: {BLOCK}.temperatur: there is no such setting. Did you mean 'temperature'?"
    ]
