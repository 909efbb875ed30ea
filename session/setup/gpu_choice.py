"""Which GPUs a worker may see: one decision, from what was asked for and the user's variables.

Pure: the driver's list and torch's count are given. A device that the user's variables exclude is
never chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...errors import UsageError
from ...probes.devices.visible_gpus import (
    CUDA,
    HIP,
    ORDER,
    PCI_ORDER,
    ROCR,
    Visible,
    asks_for_none,
    knows_order,
    label,
    variable_of,
    visible,
)
from ...probes.nvml.gpus import NvmlDevice

MUCH_FREER = 1.05
"""A GPU goes before the first one if it has so many times the free memory."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of this machine, as far as they can be told.

    Attributes:
        gpus: of NVML, in its order.
        refused: why NVML lists none.
        hip: torch is built for ROCm.
        num_by_torch: what torch counts under the user's variables, where NVML lists none; `None`
            where it was not asked.
    """

    gpus: tuple[NvmlDevice, ...] = ()
    refused: str = ""
    hip: bool = False
    num_by_torch: int | None = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a worker gets.

    Attributes:
        kind: `cuda`, `cpu`, or `auto` where only torch can tell.
        variables: to set; whatever is not in it stays as the user has it.
        num_visible: GPUs that the worker sees; `None` where it cannot be told.
        narrowed: the variable that leaves the first of them only, for the processes after a
            discovery that showed that no other is used; empty where nothing is to be narrowed.
        reordered: the GPU with the most free memory was put first.
    """

    kind: str
    variables: dict[str, str] = {}
    num_visible: int | None = None
    narrowed: dict[str, str] = {}
    reordered: bool = False


def choose_gpus(option: str, environment: Mapping[str, str], machine: Machine) -> Chosen:
    """Turns `auto`, `cuda`, `cuda:N`, `cuda:UUID` or `cuda:all` into what a worker sees.

    Args:
        option: N counts the visible ones, as torch does.
        environment: the user's variables.

    Raises:
        UsageError: there is no such GPU among those that the user allows.
    """
    kind, _, which = option.partition(":")
    if not machine.gpus:
        return _without_nvml(option, kind, which, environment, machine)
    seen = visible(environment, machine.gpus)
    if not seen.names:
        if kind == "auto" and seen.hidden:
            return Chosen(kind="cpu", num_visible=0)
        raise _error(option, "no GPU is visible", seen, machine)
    if which == "all":
        return Chosen(kind="cuda", num_visible=len(seen.names))
    if which:
        return _one_of(option, which, seen, machine)
    return _free_choice(environment, seen, machine)


def several_gpus(
    option: str, environment: Mapping[str, str], machine: Machine
) -> list[tuple[str, NvmlDevice]]:
    """The visible GPUs for `--gpus`, each with its number among them.

    Raises:
        UsageError: none is visible, or which ones they are cannot be told.
    """
    seen = visible(environment, machine.gpus)
    if not seen.names:
        raise _error(option, "no GPU is visible", seen, machine, "--device cpu:1,cpu:1 tries CPUs.")
    known = [device for device in seen.gpus if device is not None]
    if len(known) < len(seen.names) and seen.variable:
        raise _unsure(option, seen)
    if len(known) < len(seen.names):  # all of them: each is named by its UUID
        known = [device for device in machine.gpus if not device.mig_enabled]
    return [(str(place), device) for place, device in enumerate(known)]


def settled(chosen: Chosen, in_use: Sequence[int]) -> tuple[Chosen, bool]:
    """GPUs for the processes after a discovery, and whether the discovery must be made again.

    Args:
        in_use: numbers of the GPUs on which the script has memory; empty where it is not known.

    >>> four = Chosen(kind="cuda", num_visible=4, narrowed={"CUDA_VISIBLE_DEVICES": "0"})
    >>> settled(four, [0])[0].variables
    {'CUDA_VISIBLE_DEVICES': '0'}
    >>> settled(four, [0, 1])[0].variables
    {}
    """
    if not in_use or not chosen.narrowed:
        return chosen, False
    used = set(in_use)
    if used == {0}:
        pinned = msgspec.structs.replace(
            chosen, variables=chosen.narrowed, num_visible=1, narrowed={}, reordered=False
        )
        return pinned, False
    if chosen.reordered and len(used) != chosen.num_visible:
        # The script names its GPUs by number, and means the numbers that it would find alone.
        kept = {name: text for name, text in chosen.variables.items() if name != CUDA}
        again = msgspec.structs.replace(chosen, variables=kept, narrowed={}, reordered=False)
        return again, True
    return msgspec.structs.replace(chosen, narrowed={}), False


# inside --------------------------------------------------------------------------------------


def _free_choice(environment: Mapping[str, str], seen: Visible, machine: Machine) -> Chosen:
    """All stay visible; without a wish of the user's the one with the most free memory is first."""
    num = len(seen.names)
    chosen = Chosen(kind="cuda", num_visible=num)
    if num == 1:
        return chosen
    names = seen.names
    if not seen.variable:
        names = _freest_first(environment, machine)
    if not names:
        return msgspec.structs.replace(chosen, narrowed={CUDA: seen.names[0]})
    variables = {} if names == seen.names else {CUDA: ",".join(names)}
    return msgspec.structs.replace(
        chosen, variables=variables, narrowed={CUDA: names[0]}, reordered=bool(variables)
    )


def _freest_first(environment: Mapping[str, str], machine: Machine) -> tuple[str, ...]:
    """All whole GPUs by UUID, the freest first; empty where the order may stay as it is."""
    whole = [device for device in machine.gpus if not device.mig_enabled]
    if len(whole) < len(machine.gpus) or any(device.uuid is None for device in whole):
        return ()
    best = max(whole, key=lambda device: (device.free_bytes or 0, -device.index))
    first = whole[0] if knows_order(environment, whole) else None
    if first is not None and (best.free_bytes or 0) <= MUCH_FREER * (first.free_bytes or 0):
        return ()
    others = [device for device in whole if device is not best]
    return tuple(device.uuid or "" for device in (best, *others))


def _one_of(option: str, which: str, seen: Visible, machine: Machine) -> Chosen:
    """The N-th visible one, or the one with this UUID."""
    if which.isdecimal():
        if int(which) >= len(seen.names):
            raise _error(option, "there is no such GPU among the visible ones", seen, machine)
        name = seen.names[int(which)]
    else:
        name = _with_uuid(option, which, seen, machine)
    alone = len(seen.names) == 1 and bool(seen.variable or which.isdecimal())
    return Chosen(kind="cuda", variables={} if alone else {CUDA: name}, num_visible=1)


def _with_uuid(option: str, which: str, seen: Visible, machine: Machine) -> str:
    everything = [device for gpu in machine.gpus for device in (gpu, *gpu.instances)]
    fitting = [device for device in everything if (device.uuid or "").startswith(which)]
    fitting = [device for device in fitting if device.uuid == which] or fitting
    if not which.startswith(("GPU-", "MIG-")) or len(fitting) != 1:
        raise _error(option, "no GPU, or not one alone, has that UUID", seen, machine)
    wanted = fitting[0]
    allowed = [device for device in seen.gpus if device is not None]
    if len(allowed) < len(seen.names) and seen.variable:
        raise _unsure(option, seen)
    if len(allowed) < len(seen.names):
        allowed = list(machine.gpus)
    everywhere = (
        [] if seen.variable else [part for device in machine.gpus for part in device.instances]
    )
    if wanted not in (*allowed, *everywhere):
        raise _error(option, "your variables exclude that GPU", seen, machine)
    if wanted.mig_enabled:
        raise _error(option, "that GPU is partitioned: name one of its parts", seen, machine)
    return wanted.uuid or ""


def _without_nvml(
    option: str, kind: str, which: str, environment: Mapping[str, str], machine: Machine
) -> Chosen:
    """ROCm, Jetson, or no GPU: torch alone knows, and counts what the variables leave."""
    variable = variable_of(environment, hip=machine.hip)
    hiding = [CUDA, *((HIP, ROCR) if machine.hip else ())]
    hides = next((name for name in hiding if _hides(environment, name)), None)
    if kind == "auto":
        return Chosen(kind="cpu", num_visible=0) if hides else Chosen(kind="auto")
    num = machine.num_by_torch or 0
    reason = f"{hides}={environment[hides]!r} hides all" if hides else _why_none(machine)
    if not num:
        msg = f"--device {option}: no GPU: {reason}."
        raise UsageError(msg, "Check the driver with its own tool, or use --device cpu.")
    if not which or which == "all":
        return Chosen(kind="cuda", num_visible=num)
    if not which.isdecimal():
        msg = f"--device {option}: without NVML ({machine.refused}), no UUID can be looked up."
        raise UsageError(msg, f"Give a number below {num}, the number of GPUs that torch sees.")
    if int(which) >= num:
        said = f", by {variable}={environment[variable]!r}" if variable in environment else ""
        msg = f"--device {option}: there is no such GPU: torch sees {num}{said}."
        raise UsageError(msg, f"Numbers are 0 to {num - 1}.")
    if num == 1:
        return Chosen(kind="cuda", num_visible=1)
    listed = [word.strip() for word in environment.get(variable, "").split(",") if word.strip()]
    name = listed[int(which)] if int(which) < len(listed) else which
    return Chosen(kind="cuda", variables={variable: name}, num_visible=1)


def _hides(environment: Mapping[str, str], variable: str) -> bool:
    return variable in environment and asks_for_none(environment[variable])


def _why_none(machine: Machine) -> str:
    refused = machine.refused or "NVML counts no GPU"
    return f"torch sees none, and {refused}" if machine.num_by_torch is not None else refused


def _error(option: str, what: str, seen: Visible, machine: Machine, remedy: str = "") -> UsageError:
    name = option if option.startswith("--") else f"--device {option}"
    everything = ", ".join(f"{device.index} ({label(device)})" for device in machine.gpus)
    parts = [label(part) for device in machine.gpus for part in device.instances]
    has = f"The driver has: {everything}" + (f"; parts: {', '.join(parts)}" if parts else "")
    return UsageError(f"{name}: {what}. {seen}.", f"{has}. {remedy}".strip())


def _unsure(option: str, seen: Visible) -> UsageError:
    name = option if option.startswith("--") else f"--device {option}"
    return UsageError(
        f"{name}: cannot tell which GPUs {seen.variable}={seen.value!r} means: they differ, and "
        f"CUDA puts the fastest first unless {ORDER}={PCI_ORDER}.",
        f"Set {ORDER}={PCI_ORDER}, or name UUIDs in {seen.variable}.",
    )
