"""A model whose parameters lie on several devices of one process: they are measured together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import torch

from ..records import DeviceInfo, DeviceMemory, Memory
from .devices import DeviceProbe, probe_for

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
    others = [one for one in others if one != first and one.type not in NO_MEMORY]
    mine = probe_for(first, limit_bytes)
    if not others:
        return mine
    found = {str(one): probe_for(one, limit_bytes) for one in others}
    return SpreadProbe({str(first): mine, **found})


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
        infos = {name: one.info() for name, one in self._probes.items()}
        self._capacities = {name: one.capacity_bytes for name, one in infos.items()}
        first = next(iter(infos.values()))
        tightest = min(infos, key=lambda name: infos[name].capacity_bytes)
        return msgspec.structs.replace(
            first,
            capacity_bytes=infos[tightest].capacity_bytes,
            capacity_source=f"{tightest}, the smallest of {len(infos)} devices: "
            f"{infos[tightest].capacity_source}",
        )

    def reset_peaks(self) -> None:
        """On all of them."""
        for one in self._probes.values():
            one.reset_peaks()

    def read_memory(self) -> Memory:
        """That of the device with the least room left, in proportion to the smallest capacity.

        `peak <= share x capacity` holds for it if and only if it holds on every device.
        """
        if not self._capacities:
            self.info()
        found = {name: one.read_memory() for name, one in self._probes.items()}
        smallest = min(self._capacities.values())

        def filled(name: str) -> float:
            return found[name].peak_bytes / max(1, self._capacities[name])

        fullest = max(found, key=filled)
        memory = found[fullest]
        same = self._capacities[fullest] == smallest
        source = f"{memory.peak_source}, on {fullest}, the fullest of {len(found)} devices"
        return msgspec.structs.replace(
            memory,
            peak_bytes=memory.peak_bytes if same else round(filled(fullest) * smallest),
            peak_source=source if same else f"{source}, in proportion to the smallest capacity",
            devices=tuple(
                DeviceMemory(
                    device=name, peak_bytes=one.peak_bytes, capacity_bytes=self._capacities[name]
                )
                for name, one in found.items()
            ),
        )

    def synchronize(self) -> None:
        """Waits for all."""
        for one in self._probes.values():
            one.synchronize()

    def mark(self) -> Any:
        """A point on the timeline of each."""
        return tuple(one.mark() for one in self._probes.values())

    def reach(self, mark: Any, /) -> None:
        """Waits until each has come to its own."""
        for one, reached in zip(self._probes.values(), mark, strict=True):
            one.reach(reached)

    def elapsed_s(self, start: Any, end: Any) -> float | None:
        """The longest between the marks of one device; timelines of two cannot be compared."""
        times = [
            one.elapsed_s(begun, ended)
            for one, begun, ended in zip(self._probes.values(), start, end, strict=True)
        ]
        known = [one for one in times if one is not None]
        return max(known) if len(known) == len(times) else None
