"""Messages for invalid settings."""

from __future__ import annotations

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from nemo_gym.config.explain import explain_validation, parse_settings, problems_by_key
from nemo_gym.config.models import Origin
from nemo_gym.config.settings import BaseResourcesServerConfig, ModelServerRef, ResourcesServerRef
from nemo_gym.errors import ConfigError
from tests.each_case import each_case

BLOCK = "w.resources_servers.weather"


class Judge(BaseModel):
    prompt: str = ""
    max_concurrency: int = 64


class Params(BaseModel):
    model_config = ConfigDict(extra="allow")
    temperature: float | None = None


class Labels(BaseModel):
    labels: list[str]


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
    swap: tuple[str, str] | None = None
    labels: Labels | None = None


def problems(**settings):
    lines: dict[str, Origin] = {"": Origin("a.yaml", 1)}
    for line, (key, value) in enumerate(settings.items(), start=2):
        lines[key] = Origin("a.yaml", line)
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        lines |= {f"{key}.{name}": Origin("a.yaml", line) for name, _ in inner}
    address = {"name": "w", "host": "127.0.0.1", "port": 0}
    try:
        parse_settings(Settings, address | settings, block=BLOCK, origins=lines)
    except ConfigError as error:
        return str(error).splitlines()
    return []


@each_case(
    "settings",
    [
        {"entrypoint": "app.py"},
        {"entrypoint": "app.py", "verified": True, "verified_url": "x", "description": "x", "value": "x"},
        {"entrypoint": "app.py", "license": "MIT", "domain": "math", "datasets": [], "something": {"else": 1}},
        {"entrypoint": "app.py", "top_k": 3},
        {"entrypoint": "app.py", "temperature": 1, "temperatures": 2},  # a field that is set is not suggested
        {"entrypoint": "app.py", "params": {"temperatur": 1}},
        {"entrypoint": "app.py", "host": "x", "port": 3, "name": "w"},
    ],
)
def test_valid_settings_and_published_metadata_pass(settings):
    assert problems(**settings) == []


@each_case(
    ("settings", "expected"),
    [
        ({"temprature": 1}, ["a.yaml:3: {}.temprature: unknown setting. Did you mean 'temperature'?"]),
        ({"group_verification": {"colour": 5}}, ["a.yaml:3: {}.group_verification.colour: unknown setting."]),
        (
            {"group_verification": {"timeout_s": 5}},
            [
                "a.yaml:3: {}.group_verification: timeout_s is no longer a setting, because rollouts do not wait for "
                "each other. Remove it."
            ],
        ),
        (
            {"judge": {"max_concurency": 1}},
            ["a.yaml:3: {}.judge.max_concurency: unknown setting. Did you mean 'max_concurrency'?"],
        ),
        ({"temperature": "hot"}, ["a.yaml:3: {}.temperature: it must be a valid number, but is 'hot'."]),
        ({"sizes": [1, "x"]}, ["a.yaml:3: {}.sizes.1: it must be a valid integer, but is 'x'."]),
        ({"temperature": [1]}, ["a.yaml:3: {}.temperature: it must be a valid number, but is a list."]),
        ({"api_key": "s3cret"}, ["a.yaml:3: {}.api_key: it must be a valid integer, but is ****."]),
        ({"token": 123}, ["a.yaml:3: {}.token: it must be a valid string, but is ****; put it in quotes."]),
        ({"token": None}, ["a.yaml:3: {}.token: it must be a valid string, but is empty."]),
        (
            {"ref": {"type": "model", "name": "x"}},
            [
                "a.yaml:3: {}.ref.type: it must be 'responses_api_models', but is 'model'; or it must be "
                "'resources_servers', but is 'model'."
            ],
        ),
        ({"ref": {"type": "resources_servers"}}, None),
        (
            {"server": "w2"},
            ["a.yaml:3: {}.server: it must be {{type: resources_servers, name: w2}}, but is 'w2'."],
        ),
        (
            {"ref": "w2"},
            [
                "a.yaml:3: {}.ref: it must be {{type: responses_api_models, name: w2}}, but is 'w2'; or it must "
                "be {{type: resources_servers, name: w2}}, but is 'w2'."
            ],
        ),
        ({"swap": ["one"]}, ["a.yaml:3: {}.swap: it must have more items, but has 1."]),
        ({"swap": []}, ["a.yaml:3: {}.swap: it must have more items, but has 0."]),
        (
            {"labels": {"lables": ["yes"]}},
            ["a.yaml:3: {}.labels.labels: it is missing; is 'lables' a typo for it?"],
        ),
        ({"judge": 1}, ["a.yaml:3: {}.judge: it must be a mapping, but is 1."]),
    ],
)
def test_each_mistake_is_one_line_with_location(settings, expected):
    found = problems(entrypoint="app.py", **settings)
    if expected is None:
        assert any(".ref.name: it is missing" in line for line in found)
    else:
        assert found == [line.format(BLOCK) for line in expected]


def test_missing_setting_is_reported_once_with_suggestion():
    assert problems(entrypont="app.py") == [
        f"a.yaml:1: {BLOCK}.entrypoint: it is missing; is 'entrypont' a typo for it?"
    ]


def test_unknown_setting_gets_a_suggestion():
    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        limit: int = 0

    with pytest.raises(pydantic.ValidationError) as refused:
        Strict.model_validate({"limt": 3})
    text = explain_validation(
        refused.value, block="collect", origins={"limt": Origin("command line: +limt=3", 0)}, known=["limit"]
    )
    assert text == "command line: +limt=3: collect.limt: unknown setting. Did you mean 'limit'?"


def test_misspelt_override_of_default_field_is_reported():
    assert problems(entrypoint="app.py", temperature=0.0, temperatur=1.0) == [
        f"a.yaml:4: {BLOCK}.temperatur: unknown setting. Did you mean 'temperature'?"
    ]


class Repeating(BaseModel):
    repeats: PositiveInt | dict[str, PositiveInt] | None = None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (0, "it must be at least 1, but is 0"),
        ({"a": 0}, "it must be at least 1, but is 0"),
        ("many", "it must be a valid integer, but is 'many'; or it must be a mapping, but is 'many'"),
    ],
)
def test_value_that_is_too_low_names_its_bound(given, problem):
    with pytest.raises(ValidationError) as refused:
        Repeating(repeats=given)
    assert list(problems_by_key(refused.value).values()) == [problem]
