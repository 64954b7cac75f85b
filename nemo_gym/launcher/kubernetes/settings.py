"""Parameters of `ng deploy render`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationInfo, field_validator

from nemo_gym.version import __version__

Target = Literal["kubernetes", "kuberay", "compose"]
_SHAPES = {
    # Limit the name to 30 characters, because the names of servers are appended and a label has at most 63.
    "deployment": (r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?", "at most 30 lowercase letters, digits and '-', first a letter"),
    "namespace": (r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "at most 63 lowercase letters, digits and '-'"),
    "storage": (r"\d+(\.\d+)?([KMGTP]i?)?", "a size such as 10Gi"),
}


class DeploySettings(BaseModel):
    """Parameters of `ng deploy render`; every other key belongs to the configuration or to the collection."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    target: Target = "kubernetes"
    """The type of the manifest: Kubernetes objects, a RayJob for KubeRay, or a Compose file."""
    image: str = Field(default=f"nemo-gym:{__version__}", min_length=1)
    """The image with nemo_gym and your environments."""
    deployment: str = "nemo-gym"
    """The name of the run in the cluster. The names of all objects start with it."""
    namespace: str | None = None
    """The namespace of the objects. Default: the namespace that kubectl uses."""
    secret: str | None = None
    """The Secret that you create, with the run token and the endpoints' keys. Default: <deployment>-secrets."""
    input_jsonl_fpath: Path | None = None
    """The file with the rows to collect. Its content becomes part of the manifest, unless the file has an absolute
    path that exists only in the container. By default, the run only serves, and does not collect."""
    split: Literal["train", "validation", "benchmark", "example"] | None = None
    """For kuberay: the type of the agents' datasets to collect."""
    agent_name: str | None = None
    """The agent for rows without an agent_ref."""
    limit: PositiveInt | None = None
    """The number of rows to collect, from the first one. Default: all."""
    num_repeats: PositiveInt | dict[str, PositiveInt] | None = None
    """How often to run each row. Per agent: {agent: n, _default: n}."""
    num_samples_in_parallel: PositiveInt | Literal["auto"] | None = None
    """How many rollouts may run at once."""
    results_claim: str | None = None
    """An existing PersistentVolumeClaim for the results. By default, one is created."""
    storage: str = "10Gi"
    """The size of the created PersistentVolumeClaim."""
    ray_version: str = "2.60.0"
    """For kuberay: the version of Ray in the image."""
    ray_workers: PositiveInt = 2
    """For kuberay: the number of nodes for the servers, besides the head node."""
    output_fpath: Path | None = None
    """The file to write; for compose, the folder. By default, print to standard output."""

    @field_validator(*_SHAPES)
    @classmethod
    def _has_its_shape(cls, given: str | None, info: ValidationInfo) -> str | None:
        pattern, meaning = _SHAPES[str(info.field_name)]
        if given is not None and not re.fullmatch(pattern, given):
            raise ValueError(f"it must be {meaning}")
        return given
