"""Stacks in the file format of speedscope (speedscope.app), which other viewers read as well.

Threads of the host are `evented` profiles: frames open and close in order of time, each inside the
one around it. A GPU is a `sampled` one: stacks with their time, in no order.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...records import Frame, Stacks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
MARK = f'{{"$schema":"{SCHEMA}"'
"""What such a file of ours begins with."""
_PLACE = re.compile(r"(?P<file>[^()]+)\((?P<line>\d+)\): (?P<name>.+)")


def render(stacks: Stacks, name: str) -> str:
    """The whole file, one line of JSON.

    Args:
        name: of the file, as viewers show it.
    """
    profiles: list[dict[str, Any]] = []
    for thread in stacks.threads:
        events = [
            {"type": "O" if opens else "C", "frame": frame, "at": _us(at_s)}
            for opens, frame, at_s in zip(thread.opened, thread.frame, thread.at_s, strict=True)
        ]
        profiles.append(
            {
                "type": "evented",
                "name": thread.name,
                "unit": "microseconds",
                "startValue": 0,
                "endValue": _us(stacks.window_s),
                "events": events,
            }
        )
    for device in stacks.launched:
        weights = [_us(total_s) for total_s in device.total_s]
        profiles.append(
            {
                "type": "sampled",
                "name": device.name,
                "unit": "microseconds",
                "startValue": 0,
                "endValue": _us(sum(device.total_s)),
                "samples": device.stacks,
                "weights": weights,
            }
        )
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": [_frame(frame) for frame in stacks.frames]},
        "profiles": profiles,
        "activeProfileIndex": 0,
        "name": name,
        "exporter": "batchadvisor",
    }
    return msgspec.json.encode(document).decode() + "\n"


def _frame(frame: Frame) -> dict[str, Any]:
    """File and line stand apart where the frame has them."""
    place = _PLACE.fullmatch(frame.name) if frame.kind in ("python", "library") else None
    if place is None:
        return {"name": frame.name}
    return {"name": place["name"], "file": place["file"], "line": int(place["line"])}


def _us(seconds: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(1e6 * seconds, 3)
