"""Which devices a run on several is for: `--gpus` and `--device cpu:1,cpu:1@0.4`."""

from __future__ import annotations

import os

import msgspec

from ...advisor.split.twins import representatives
from ...errors import UsageError
from .gpu_choice import several_gpus
from .target import logical_cpu, machine


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
    devices: list[Device] = []
    dealt = 0
    for text in option.split(","):
        cores, _ = logical_cpu(text)
        if not cores:
            msg = f"--device {option}: several devices need numbers of cores; {text!r} has none."
            raise UsageError(msg, "Write cpu:1,cpu:1.")
        mine_now = tuple(mine[dealt : dealt + len(cores)])
        dealt += len(cores)
        if dealt > len(mine):
            msg = f"--device {option}: needs {dealt} cores or more, and there are {len(mine)}."
            raise UsageError(msg, "Ask for fewer.")
        name = text.replace(":", "-").replace("@", "-at-")
        same = sum(
            device.name == name or device.name.startswith(f"{name}-no-") for device in devices
        )
        devices.append(
            Device(
                name=f"{name}-no-{same + 1}" if same else name,
                option=text,
                model=f"CPU, {len(cores)} core{'s' if len(cores) > 1 else ''}",
                cores=mine_now,
            )
        )
    return tuple(devices)


def chosen_gpus(option: str) -> tuple[Device, ...]:
    """The devices of `--gpus all|0,2|distinct`; numbers count the visible ones, as torch does.

    Raises:
        UsageError: there is no such GPU among those that the user allows.
    """
    here = machine("auto")
    if not here.gpus:
        reason = here.refused or "NVML counts no GPU"
        msg = f"--gpus {option}: no GPU: {reason}."
        raise UsageError(msg, "Check nvidia-smi; --device cpu:1,cpu:1 tries logical CPU devices.")
    visible = several_gpus(f"--gpus {option}", os.environ, here)
    if option == "all":
        chosen = visible
    elif option == "distinct":
        models = [gpu.name or "?" for _, gpu in visible]
        chosen = [visible[place] for place in representatives(models)]
    else:
        by_number = dict(visible)
        wanted = list(dict.fromkeys(part.strip() for part in option.split(",") if part.strip()))
        missing = [number for number in wanted if number not in by_number]
        if missing or not wanted:
            names = [f"{number} ({gpu.name or '?'})" for number, gpu in visible]
            msg = f"--gpus {option}: there is no GPU {', '.join(missing) or 'named'}."
            raise UsageError(msg, f"Visible: {', '.join(names)}; or all, or distinct.")
        chosen = [(number, by_number[number]) for number in wanted]
    return tuple(
        Device(
            name=f"cuda-{number}",
            option=f"cuda:{gpu.uuid or number}",
            model=gpu.name or f"GPU {number}",
        )
        for number, gpu in chosen
    )
