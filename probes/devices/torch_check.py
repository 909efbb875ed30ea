"""Tries torch in a process of its own, which may crash: import, a step, its device, its profiler.

    python -c "from batchadvisor.probes.devices.torch_check import main; main()"

Prints JSON on its last line. A broken build ends the process, not the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Prints what torch can do here."""
    import torch

    answer: dict[str, Any] = {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "file": torch.__file__,
        "errors": {},
    }
    _say(answer)
    for name, check in (("step", _step), ("device", _device), ("profiler", _profiler)):
        try:
            answer[name] = check(torch)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            answer["errors"][name] = f"{type(error).__name__}: {error}".splitlines()[0]
        _say(answer)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  the caller reads it


def _step(torch: Any, device: str = "cpu") -> str:
    layer = torch.nn.Linear(8, 1, device=device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(4, 8, device=device)).sum().backward()
    optimizer.step()
    return f"an optimizer step on {device}"


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        _step(torch, "cuda")
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        return f"{torch.cuda.device_count()} x {name}, {free / total:.0%} of the memory free"
    for kind in ("mps", "xpu"):
        backend = getattr(torch, kind, None)
        if backend is not None and getattr(backend, "is_available", bool)():
            return str(_step(torch, kind))
    return ""


def _profiler(torch: Any) -> dict[str, int]:
    from torch.profiler import ProfilerActivity, profile

    cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    step: Callable[[], Any] = lambda: _step(torch, "cuda" if cuda else "cpu")  # noqa: E731
    step()
    with profile(activities=activities) as prof:
        step()
        if cuda:
            torch.cuda.synchronize()
    events = prof.events() or []
    kinds = [str(event.device_type) for event in events]
    return {
        "operators": sum("CPU" in kind for kind in kinds),
        "kernels": sum("CUDA" in kind for kind in kinds),
    }
