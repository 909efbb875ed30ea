"""A model whose parameters lie on several devices of one process: they are measured together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import torch

from ...records import DeviceInfo, DeviceMemory, Memory
from .device_probe import DeviceProbe
from .torch_devices import probe_for

NO_MEMORY = ("meta",)
"""Kinds of devices that hold nothing."""


def probe_of_model(
    first: torch.device, devices: Iterable[str], limit_bytes: int | None
) -> DeviceProbe:
    """The probe for the devices that the script's parameters live on.

    Args:
        first: where the loop was found to train.
        devices: all of them, as torch names them.
        limit_bytes: what the user allows on each.
    """
    others = [torch.device(name) for name in devices]
    others = [other for other in others if other != first and other.type not in NO_MEMORY]
    mine = probe_for(first, limit_bytes)
    if not others:
        return mine
    probes = {str(other): probe_for(other, limit_bytes) for other in others}
    return SpreadProbe({str(first): mine, **probes})


class SpreadProbe:
    """Several devices as one: the step is over when all are, the fullest bounds the batch.

    Args:
        probes: by the name of the device, the first one first.
    """

    def __init__(self, probes: Mapping[str, DeviceProbe]) -> None:
        self._probes = dict(probes)
        self._capacities: dict[str, int] = {}

    def info(self) -> DeviceInfo:
        """The first device, with the smallest capacity of all."""
        infos = {name: probe.info() for name, probe in self._probes.items()}
        self._capacities = {name: info.capacity_bytes for name, info in infos.items()}
        first = next(iter(infos.values()))
        tightest = min(infos, key=lambda name: infos[name].capacity_bytes)
        return msgspec.structs.replace(
            first,
            capacity_bytes=infos[tightest].capacity_bytes,
            capacity_source=f"{tightest}, the smallest of {len(infos)} devices: "
            f"{infos[tightest].capacity_source}",
        )

    def reset_peaks(self) -> None:
        """Resets the peaks of all devices."""
        for probe in self._probes.values():
            probe.reset_peaks()

    def read_memory(self) -> Memory:
        """That of the device with the least room left, in proportion to the smallest capacity.

        `peak <= share x capacity` holds for it if and only if it holds on every device.
        """
        if not self._capacities:
            self.info()
        memories = {name: probe.read_memory() for name, probe in self._probes.items()}
        smallest = min(self._capacities.values())

        def filled(name: str) -> float:
            return memories[name].peak_bytes / max(1, self._capacities[name])

        fullest = max(memories, key=filled)
        memory = memories[fullest]
        same = self._capacities[fullest] == smallest
        source = f"{memory.peak_source}, on {fullest}, the fullest of {len(memories)} devices"
        return msgspec.structs.replace(
            memory,
            peak_bytes=memory.peak_bytes if same else round(filled(fullest) * smallest),
            peak_source=source if same else f"{source}, in proportion to the smallest capacity",
            devices=tuple(
                DeviceMemory(
                    device=name, peak_bytes=own.peak_bytes, capacity_bytes=self._capacities[name]
                )
                for name, own in memories.items()
            ),
        )

    def synchronize(self) -> None:
        """Waits for all."""
        for probe in self._probes.values():
            probe.synchronize()

    def mark(self) -> Any:
        """A point on the timeline of each."""
        return tuple(probe.mark() for probe in self._probes.values())

    def reach(self, mark: Any, /) -> None:
        """Waits until each has come to its own."""
        for probe, reached in zip(self._probes.values(), mark, strict=True):
            probe.reach(reached)

    def elapsed_s(self, start: Any, end: Any) -> float | None:
        """The longest between the marks of one device; timelines of two cannot be compared."""
        times = [
            probe.elapsed_s(begun, ended)
            for probe, begun, ended in zip(self._probes.values(), start, end, strict=True)
        ]
        known = [time_s for time_s in times if time_s is not None]
        return max(known) if len(known) == len(times) else None
