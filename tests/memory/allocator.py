"""A small replica of torch's caching allocator, which writes snapshots whose numbers it knows.

Sizes are rounded to 512 bytes; up to 1 MiB comes from segments of 2 MiB, less than 10 MiB from
segments of 20 MiB, more from its own, rounded to 2 MiB. The smallest block that fits is split where
the rest is worth it. What it counts while it works (in use, asked for, alive at the peak) is
counted apart from the blocks and events that it writes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

MIB = 1024**2
SMALL, MIDDLE = MIB, 10 * MIB


class NoMemoryError(Exception):
    """The simulated device is full."""


def frame(filename: str, line: int, name: str) -> dict[str, Any]:
    return {"filename": filename, "line": line, "name": name}


def user(line: int, name: str = "main", *inner: dict[str, Any]) -> list[dict[str, Any]]:
    """A stack that ends in a line of the user's, with frames of torch inside it."""
    return [*inner, frame("/home/me/job/train.py", line, name)]


TORCH = "/env/lib/python3.11/site-packages/torch/"
ADAM = frame(TORCH + "optim/adam.py", 171, "_init_group")
LINEAR = frame(TORCH + "nn/modules/linear.py", 125, "forward")
APPLY = frame(TORCH + "nn/modules/module.py", 930, "_apply")


class Allocator:
    """One device's allocator.

    Attributes:
        allocated, requested, reserved: bytes, kept by counting.
        peak: most bytes asked for at a moment, with `peak_lines`, bytes by line then.
    """

    def __init__(self, capacity: int = 1 << 40, *, expandable: bool = False) -> None:
        self.capacity, self.expandable = capacity, expandable
        self.segments: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.live: dict[int, tuple[int, int, Any]] = {}
        self.allocated = self.requested = self.reserved = self.peak = 0
        self.peak_lines: Counter[str] = Counter()
        self.time = 1_700_000_000_000_000
        self.next = 0x7F00_0000_0000

    def malloc(self, size: int, frames: list[dict[str, Any]], stream: int = 0) -> int:
        rounded = max(512, -(-size // 512) * 512)
        kind = "small" if rounded <= SMALL else "large"
        place = self._find(rounded, kind, stream)
        if place is None:
            place = self._more(rounded, kind, stream, frames)
        segment, number = place
        block = segment["blocks"][number]
        rest = block["size"] - rounded
        if rest >= 512 if kind == "small" else rest > SMALL:
            split = {**_free(block["address"] + rounded, rest)}
            segment["blocks"].insert(number + 1, split)
            block["size"] = rounded
        block.update(state="active_allocated", requested_size=size, frames=frames)
        self.event("alloc", block["address"], size, stream, frames)
        self.live[block["address"]] = (block["size"], size, frames)
        self.allocated += block["size"]
        self.requested += size
        if self.requested > self.peak:
            self.peak = self.requested
            self.peak_lines = Counter()
            for _, held, stack in self.live.values():
                self.peak_lines[_line(stack)] += held
        return block["address"]

    def free(self, address: int, *, late: bool = False) -> None:
        """Frees a block; with `late`, another stream still uses it."""
        size, requested, _ = self.live.pop(address)
        self.event("free_requested", address, requested, 0, [])
        segment, number = self._at(address)
        self.allocated -= size
        if late:
            segment["blocks"][number]["state"] = "active_pending_free"
            return
        self.requested -= requested
        self.event("free_completed", address, requested, 0, [])
        blocks = segment["blocks"]
        blocks[number] = _free(address, size)
        for left in (number, number - 1):
            if 0 <= left < len(blocks) - 1 and {
                blocks[left]["state"],
                blocks[left + 1]["state"],
            } == {"inactive"}:
                blocks[left]["size"] += blocks.pop(left + 1)["size"]

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            if [block["state"] for block in segment["blocks"]] == ["inactive"]:
                self.segments.remove(segment)
                self.reserved -= segment["total_size"]
                self.event(
                    "segment_free", segment["address"], segment["total_size"], segment["stream"], []
                )

    def snapshot(self, *others: Allocator, **more: Any) -> dict[str, Any]:
        """What `_snapshot()` would return; `others` are the next devices."""
        devices = (self, *others)
        return {
            "segments": [
                {
                    **segment,
                    "device": number,
                    "allocated_size": sum(
                        block["size"]
                        for block in segment["blocks"]
                        if block["state"] == "active_allocated"
                    ),
                }
                for number, device in enumerate(devices)
                for segment in device.segments
            ],
            "device_traces": [device.events for device in devices],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "expandable_segments": self.expandable,
                "roundup_power2_divisions": {"1": 0},
            },
            "external_annotations": [],
            **more,
        }

    def event(self, action: str, address: int, size: int, stream: int, frames: Any) -> None:
        self.time += 10
        key = "device_free" if action == "oom" else "addr"
        self.events.append(
            {
                "action": action, key: address, "size": size, "stream": stream,
                "time_us": self.time, "frames": frames,
            }
        )  # fmt: skip

    def _find(self, size: int, kind: str, stream: int) -> tuple[dict[str, Any], int] | None:
        fitting = [
            (block["size"], block["address"], number, segment)
            for segment in self.segments
            if segment["segment_type"] == kind and segment["stream"] == stream
            for number, block in enumerate(segment["blocks"])
            if block["state"] == "inactive" and block["size"] >= size
        ]
        if not fitting:
            return None
        _, _, number, segment = min(fitting, key=lambda item: item[:2])
        return segment, number

    def _more(self, size: int, kind: str, stream: int, frames: Any) -> tuple[dict[str, Any], int]:
        total = 2 * MIB if kind == "small" else 20 * MIB
        if size >= MIDDLE:
            total = -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved + total > self.capacity:
            self.empty_cache()
        if self.reserved + total > self.capacity:
            self.event("oom", self.capacity - self.reserved, size, stream, frames)
            raise NoMemoryError
        segment = {
            "address": self.next, "total_size": total, "stream": stream, "segment_type": kind,
            "segment_pool_id": (0, 0), "is_expandable": self.expandable, "frames": [],
            "blocks": [_free(self.next, total)],
        }  # fmt: skip
        self.next += total + 2 * MIB
        self.segments.append(segment)
        self.reserved += total
        self.event("segment_alloc", segment["address"], total, stream, frames)
        return segment, 0

    def _at(self, address: int) -> tuple[dict[str, Any], int]:
        for segment in self.segments:
            for number, block in enumerate(segment["blocks"]):
                if block["address"] == address:
                    return segment, number
        raise AssertionError(address)


def _free(address: int, size: int) -> dict[str, Any]:
    return {
        "address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": [],
    }  # fmt: skip


def _line(frames: list[dict[str, Any]]) -> str:
    if not frames:
        return ""
    return f"job/train.py:{frames[-1]['line']}"


def train(device: Allocator, steps: int, leak: int = 0, *, optimizer: bool = True) -> None:
    """A training: weights, Adam's state in the first step, activations and gradients a step."""
    weights = [device.malloc(4 * MIB + 100, user(10, "build", APPLY)) for _ in range(6)]
    for step in range(steps):
        kept = [
            device.malloc((3 + layer) * MIB + 7, user(20, "forward", LINEAR)) for layer in range(6)
        ]
        if leak:
            device.malloc(leak, user(41))
        gradients = [device.malloc(4 * MIB + 100, []) for _ in weights]
        for address in reversed(kept):
            device.free(address)
        if optimizer:
            if step == 0:
                for _ in weights:
                    device.malloc(8 * MIB, user(30, "main", ADAM))
            device.free(device.malloc(2 * MIB, user(30, "main", ADAM)))
        for address in gradients:
            device.free(address)
