"""Which devices a run on several is for: `--gpus` and `--device cpu:1,cpu:1@0.4`."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from ..advisor.twins import representatives
from ..errors import UsageError
from ..probes.nvml import NvmlDevice, devices, nvml_unavailable
from .target import logical_cpu


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device to probe.

    Attributes:
        name: unique in the run, and the name of its folder.
        option: what `--device` of its run says.
        model: devices with the same text are twins.
        cores: the cores that its processes may use; empty for all.
    """

    name: str
    option: str
    model: str
    cores: tuple[int, ...] = ()


def logical_devices(option: str) -> tuple[Device, ...]:
    """The devices of `--device cpu:1,cpu:1@0.4`: cores are dealt out in order.

    Raises:
        UsageError: there are not enough cores, or one is no logical CPU device.
    """
    mine = sorted(os.sched_getaffinity(0))
    found: list[Device] = []
    dealt = 0
    for text in option.split(","):
        cores, _ = logical_cpu(text)
        if not cores:
            msg = f"--device {option}: several devices need their cores, {text!r} names none."
            raise UsageError(msg, "Write cpu:1,cpu:1.")
        mine_now = tuple(mine[dealt : dealt + len(cores)])
        dealt += len(cores)
        if dealt > len(mine):
            msg = f"--device {option}: {dealt} cores or more, and there are {len(mine)}."
            raise UsageError(msg, "Ask for fewer.")
        name = text.replace(":", "-").replace("@", "-at-")
        same = sum(one.name == name or one.name.startswith(f"{name}-no-") for one in found)
        found.append(
            Device(
                name=f"{name}-no-{same + 1}" if same else name,
                option=text,
                model=f"CPU, {len(cores)} core{'s' if len(cores) > 1 else ''}",
                cores=mine_now,
            )
        )
    return tuple(found)


def chosen_gpus(option: str) -> tuple[Device, ...]:
    """The devices of `--gpus all|0,2|distinct`.

    Raises:
        UsageError: there is no such GPU.
    """
    found = _visible(devices())
    if not found:
        reason = nvml_unavailable() or "NVML counts no GPU that this process may see"
        msg = f"--gpus {option}: no GPU: {reason}."
        raise UsageError(msg, "Check nvidia-smi; --device cpu:1,cpu:1 tries logical CPU devices.")
    if option == "all":
        chosen = list(found)
    elif option == "distinct":
        names = [one.name or "?" for one in found]
        chosen = [found[place] for place in representatives(names)]
    else:
        by_index = {str(one.index): one for one in found}
        wanted = list(dict.fromkeys(one.strip() for one in option.split(",") if one.strip()))
        missing = [one for one in wanted if one not in by_index]
        if missing or not wanted:
            names = [f"{one.index} ({one.name or '?'})" for one in found]
            msg = f"--gpus {option}: there is no GPU {', '.join(missing) or 'named'}."
            raise UsageError(msg, f"GPUs here: {', '.join(names)}; or all, or distinct.")
        chosen = [by_index[one] for one in wanted]
    return tuple(
        Device(
            name=f"cuda-{one.index}",
            option=f"cuda:{one.uuid or one.index}",
            model=one.name or f"GPU {one.index}",
        )
        for one in chosen
    )


def _visible(found: Sequence[NvmlDevice]) -> list[NvmlDevice]:
    """Those that CUDA_VISIBLE_DEVICES allows, in NVML's order."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return list(found)
    names = {one.strip() for one in allowed.split(",") if one.strip()}
    return [
        one
        for one in found
        if str(one.index) in names or any(one.uuid and one.uuid.startswith(n) for n in names)
    ]
