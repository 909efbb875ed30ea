"""What a cluster's engine knows beside how a probe is started: which GPUs there are."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ....session.devices.engine import Engine


class GpuType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of GPU that a cluster has.

    Attributes:
        name: unique in the run, and the name of the folder of its record.
        request: as the engine asks for one of them: `gpu:a100:1`.
    """

    name: str
    request: str


class ClusterEngine(Engine, Protocol):
    """Starts probes on the nodes of a cluster."""

    def types(self) -> tuple[GpuType, ...]:
        """The types of GPU to probe.

        Raises:
            UsageError: the engine is not here, or its cluster has no GPU, or none as asked for.
        """
        ...
