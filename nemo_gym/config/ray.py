"""The resources and nodes that a server needs in a Ray cluster. The settings have the same names as in Ray."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Strategy = Literal["DEFAULT", "SPREAD", "PACK", "STRICT_PACK", "STRICT_SPREAD"]


class RayNeeds(BaseModel):
    """Resources and nodes for each process of a server, if Ray starts it (`launcher: ray`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    num_cpus: float = Field(default=1.0, ge=0)
    """Cores that Ray reserves."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs that Ray reserves and makes visible to the process."""
    memory: int = Field(default=0, ge=0)
    """Bytes of memory that Ray reserves; 0 for none."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Amounts of custom resources of the cluster."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the node must have."""
    node: str | None = None
    """The IP address of the only node that may run the server."""
    strategy: Strategy | None = None
    """The placement strategy of the processes. Default: `SPREAD` for several processes, otherwise Ray's `DEFAULT`."""

    def __str__(self) -> str:
        amounts = {"CPU": self.num_cpus, "GPU": self.num_gpus, "byte of memory": float(self.memory), **self.resources}
        words = [f"{amount:g} {name}" for name, amount in amounts.items() if amount]
        words += [f"a node with {name}={value}" for name, value in self.label_selector.items()]
        words += [f"node {self.node}"] if self.node else []
        return ", ".join(words) or "any node"
