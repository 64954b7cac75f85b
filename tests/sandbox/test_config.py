"""Resolving providers from a config or a name, and rewriting images."""

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.loading import load
from nemo_gym.errors import ConfigError
from nemo_gym.sandbox import config as published_config
from nemo_gym.sandbox import (
    create_provider,
    get_provider_class,
    list_providers,
    providers,
    register_provider,
    resolve_provider_config,
    resolve_provider_metadata,
    rewrite_image,
)
from nemo_gym.sandbox import utils as published_utils
from nemo_gym.sandbox.providers import apptainer, bubblewrap, docker
from tests.each_case import each_case

CONFIG = {
    "sandbox": {"docker": {"network": "none"}, "default_metadata": {"team": "ours", "cost": 3, "none": None}},
    "small": {"bubblewrap": {"memory_mib": 64}},
    "two": {"bubblewrap": {}, "docker": {}},
    "policy_model": {"responses_api_models": {}},
    "own": {"tests.somewhere:Provider": {}},
}


class Local:
    """A custom provider."""

    def __init__(self, size=1):
        self.size = size


@each_case("config", [CONFIG, OmegaConf.create(CONFIG)])
@each_case(
    ("given", "provider", "metadata"),
    [
        ("sandbox", {"docker": {"network": "none"}}, {"team": "ours", "cost": "3"}),
        ("docker", {"docker": {"network": "none"}}, {"team": "ours", "cost": "3"}),
        ("small", {"bubblewrap": {"memory_mib": 64}}, {}),
        ("apptainer", {"apptainer": {}}, {"team": "ours", "cost": "3"}),
        ({"docker": None}, {"docker": {}}, {}),
        ({"daytona": {"api_key": "x"}}, {"daytona": {"api_key": "x"}}, {}),
        ({"not-installed": {}}, {"not-installed": {}}, {}),
        ("own", {"tests.somewhere:Provider": {}}, {}),
        ({"provider": "docker", "network": "x"}, {"docker": {"network": "x"}}, {}),
        (CONFIG["sandbox"], {"docker": {"network": "none"}}, {"team": "ours", "cost": "3"}),
    ],
)
def test_provider_is_resolved_from_block_or_name(config, given, provider, metadata):
    assert resolve_provider_config(ref_or_mapping=given, named_configs=config) == provider
    assert resolve_provider_metadata(given, config) == metadata


def test_interpolations_in_a_block_are_resolved():
    config = OmegaConf.create({"mine": "none", "sandbox": {"docker": {"network": "${mine}"}}})
    assert resolve_provider_config("sandbox", config) == {"docker": {"network": "none"}}


@each_case(
    ("given", "message"),
    [
        ("smal", "Did you mean 'small'?"),
        ("dokcer", "Did you mean 'docker'?"),
        ("two", "one key.*bubblewrap, docker"),
        ({}, "found: nothing"),
        ("", "is empty"),
        ({"docker": 3}, "must be a mapping"),
    ],
)
def test_unresolvable_provider_is_explained(given, message):
    with pytest.raises(ValueError, match=message) as refused:
        resolve_provider_config(given, CONFIG)
    assert isinstance(refused.value, ConfigError)


@each_case("given", [None, 3, ["docker"]])
def test_provider_is_a_name_or_a_mapping(given):
    with pytest.raises(TypeError, match="name of a config block"):
        resolve_provider_config(given, CONFIG)


def test_metadata_must_be_a_mapping():
    with pytest.raises(ConfigError, match="default_metadata"):
        resolve_provider_metadata({"docker": {}, "default_metadata": "x"}, {})


def test_published_import_paths_export_same_objects():
    assert published_config.resolve_provider_config is resolve_provider_config
    assert published_config.resolve_provider_metadata is resolve_provider_metadata
    assert published_utils.rewrite_image is rewrite_image
    assert apptainer.provider.ApptainerProvider is apptainer.ApptainerProvider
    assert docker.provider.DockerProvider is docker.DockerProvider


def test_built_in_providers_are_found_by_name():
    assert {"apptainer", "bubblewrap", "docker"} <= set(list_providers())
    assert get_provider_class("bubblewrap") is bubblewrap.BubblewrapProvider
    assert create_provider("docker").name == "docker"
    assert create_provider({"docker": {"create": {"network": "none"}}}).create_config.network == "none"
    assert create_provider(OmegaConf.create({"docker": {"volumes": ["a:b"]}})).create_config.volumes == ["a:b"]
    assert create_provider("docker", {"network": "a"}, image="b").create_config.image == "b"


def test_custom_provider_is_registered_or_named_by_path():
    register_provider("test-local", Local)
    assert create_provider({"test-local": {"size": 3}}).size == 3
    assert get_provider_class("json:JSONDecoder").__name__ == "JSONDecoder"
    assert "test-local" in list_providers()
    with pytest.raises(TypeError, match="does not accept these options"):
        create_provider("test-local", colour="red")
    for taken in ("test-local", "docker", "daytona"):
        with pytest.raises(ValueError, match="already exists"):
            register_provider(taken, Local)
    register_provider("test-local", dict, override=True)
    assert get_provider_class("test-local") is dict


def test_installed_package_may_offer_providers(tmp_path, monkeypatch):
    (tmp_path / "offering.py").write_text("class Provider:\n    def __init__(self, size=1): self.size = size\n")
    metadata = tmp_path / "offering-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    offers = "[nemo_gym.sandbox_providers]\ntest-offered = offering:Provider\nopenshell = offering:Provider\n"
    (metadata / "entry_points.txt").write_text(offers)
    monkeypatch.syspath_prepend(tmp_path)
    assert create_provider({"test-offered": {"size": 3}}).size == 3
    assert create_provider({"openshell": {"size": 4}}).size == 4
    assert "test-offered" in list_providers()
    with pytest.raises(ValueError, match="already exists"):
        register_provider("test-offered", Local)


@each_case("name", ["daytona", "e2b", "ecs_fargate", "enroot", "opensandbox", "openshell"])
def test_absent_provider_explains_itself_when_constructed(name):
    provider = get_provider_class(name)
    assert providers.create_provider is create_provider
    with pytest.raises(ConfigError, match=f"'{name}' is not part of this package"):
        provider(api_key="x")
    with pytest.raises(ConfigError, match=f"'{name}' is not part of this package"):
        create_provider({name: {}})


def test_unknown_provider_is_listed_with_known_ones():
    with pytest.raises(ValueError, match=r"Did you mean 'docker'.*apptainer, bubblewrap, daytona, docker"):
        get_provider_class("dokcer")
    with pytest.raises(ValueError, match="apptainer, bubblewrap"):
        create_provider({"nonsense": {}})
    with pytest.raises(ValueError, match="cannot be imported"):
        create_provider({"tests.somewhere:Provider": {}})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"memory_mb": 3}, "no option 'memory_mb'. Did you mean 'memory_mib'"), ({"pids": 0}, "the option 'pids'")],
)
def test_unknown_or_invalid_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        create_provider({"bubblewrap": options})


@each_case(
    ("rewrites", "image", "rewritten"),
    [
        (None, "a/b:1", "a/b:1"),
        ({}, "a/b:1", "a/b:1"),
        ({"docker.io/": "mirror/"}, "docker.io/a/b:1", "mirror/a/b:1"),
        ({"docker.io/me": "mirror"}, "docker.io/mehmet/b", "docker.io/mehmet/b"),
        ({"docker.io/me": "mirror"}, "docker.io/me/b", "mirror/b"),
        ({"a": "b"}, "a:1", "b:1"),
        ([("x", "y"), ("a", "b"), ("a", "c")], "a@sha256:0", "b@sha256:0"),
        ([{"from": "a/", "to": "b/"}], "a/c", "b/c"),
        ([{"source": "a/", "target": "b/"}], "a/c", "b/c"),
    ],
)
def test_first_matching_image_prefix_is_rewritten(rewrites, image, rewritten):
    assert rewrite_image(image, rewrites) == rewritten


def test_rewrite_needs_from_and_to():
    with pytest.raises(ValueError, match="'from' and 'to'"):
        rewrite_image("a", [{"from": "a"}])


SHIPPED = ["apptainer", "bubblewrap", "daytona", "docker", "ecs_fargate", "enroot", "opensandbox", "openshell"]


@each_case("name", SHIPPED)
def test_shipped_config_selects_its_provider(name):
    run = load([f"nemo_gym/sandbox/providers/{name}/configs/{name}.yaml"], skip_dotenv=True)
    assert resolve_provider_config("sandbox", run.plain) == {name: {}}
    assert resolve_provider_metadata("sandbox", run.plain) == {"sandbox-api": name}
