"""Specs, resources and endpoints of sandboxes: what they accept and how they keep it."""

from dataclasses import replace

import pytest

from nemo_gym.sandbox import (
    ExecResult,
    SandboxCreateError,
    SandboxCreateVerificationError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.utils import CPU_CAP_ENV_VARS, cpu_cap_env
from tests.each_case import each_case


def test_spec_copies_plain_mappings():
    env = {"A": "b"}
    spec = SandboxSpec(env=env, resources={"cpu": 2, "memory_mib": 64}, entrypoint="server")
    env["A"] = "c"
    assert spec.env == {"A": "b"}
    assert spec.resources == SandboxResources(cpu=2, memory_mib=64)
    assert spec.entrypoint == ["server"]
    assert replace(spec, image="x").resources is spec.resources
    assert "s3cret" not in repr(SandboxSpec(env={"TOKEN": "s3cret"}, provider_options={"key": "s3cret"}))


@each_case("wrong", [{"ttl_s": 0}, {"resources": {"memory_mib": -1}}, {"ready_timeout_s": -2}])
def test_spec_rejects_invalid_values(wrong):
    with pytest.raises(ValueError, match="above 0"):
        SandboxSpec(**wrong)


@each_case(
    ("mapping", "resources"),
    [
        (None, SandboxResources()),
        ({}, SandboxResources()),
        ({"cpu": "1.5", "memory_mib": "2048"}, SandboxResources(cpu=1.5, memory_mib=2048)),
        ({"gpu": "2", "gpu_type": 100, "disk_gib": 20.0}, SandboxResources(gpu=2, gpu_type="100", disk_gib=20)),
        ({"cpu": None, "gpu": None}, SandboxResources()),
    ],
)
def test_resources_are_converted_from_a_mapping(mapping, resources):
    made = SandboxResources.from_mapping(mapping)
    assert made == resources == SandboxSpec(resources=mapping).resources
    assert [type(value) for value in vars(made).values()] == [type(value) for value in vars(resources).values()]


@each_case(
    ("mapping", "message"),
    [
        ({"cpus": 2}, "these keys are unknown: cpus. Use cpu, memory_mib"),
        ({"memory_mib": "4 GB"}, "memory_mib must be a number"),
    ],
)
def test_wrong_resources_are_named(mapping, message):
    with pytest.raises(ValueError, match=message):
        SandboxResources.from_mapping(mapping)
    with pytest.raises(ValueError, match=message):
        SandboxSpec(resources=mapping)


@each_case(("ports", "kept"), [((), ()), ([80, "8080"], (80, 8080)), ((1, 65_535), (1, 65_535))])
def test_ports_are_kept_as_numbers(ports, kept):
    assert SandboxSpec(ports=ports).ports == kept


@each_case(
    ("ports", "error"),
    [(80, TypeError), ("80", TypeError), ({80}, TypeError), ([0], ValueError), ([65_536], ValueError),
     ([True], ValueError), (["http"], ValueError), ([8.0], ValueError), ([80, "80"], ValueError)],
)  # fmt: skip
def test_wrong_ports_are_rejected(ports, error):
    with pytest.raises(error, match="ports of a sandbox"):
        SandboxSpec(ports=ports)


def test_endpoint_is_an_absolute_url():
    endpoint = SandboxEndpoint(" https://host:80/path ", headers={"X-Port": 80})
    assert (endpoint.endpoint, endpoint.headers) == ("https://host:80/path", {"X-Port": "80"})
    for wrong in ("host:80", "/path", "http://", ""):
        with pytest.raises(ValueError, match="absolute URL"):
            SandboxEndpoint(wrong)
    with pytest.raises(TypeError, match="headers"):
        SandboxEndpoint("http://host", headers=["X"])


def test_values_have_their_published_form():
    assert [*SandboxStatus] == ["starting", "running", "stopped", "error", "unknown"]
    assert ExecResult is SandboxExecResult
    assert issubclass(SandboxCreateVerificationError, SandboxCreateError)
    handle = SandboxHandle("a", "docker", {"raw": 1})
    handle.sandbox_id = "b"
    assert (handle.sandbox_id, handle.provider_name, handle.raw) == ("b", "docker", {"raw": 1})


@each_case(("cpu", "text"), [(4, "4"), (2.9, "2"), (0.5, "1"), ("3", "3")])
def test_thread_pools_are_capped_at_cpus(cpu, text):
    assert cpu_cap_env(cpu) == dict.fromkeys(CPU_CAP_ENV_VARS, text)
    assert {"OMP_NUM_THREADS", "PYTHON_CPU_COUNT", "GOMAXPROCS"} <= {*CPU_CAP_ENV_VARS}
    assert cpu_cap_env(None) == {}
