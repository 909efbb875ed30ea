"""Which GPUs a process may see: the driver's list and the user's variables, without any driver.

The rules for CUDA_VISIBLE_DEVICES are those of the CUDA C++ Programming Guide (environment
variables) as torch repeats them in `torch.cuda._parse_visible_devices`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...records import Record
from ..nvml.gpus import NvmlDevice

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
ORDER, PCI_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"

_NUMBER = re.compile(r"[+-]?[0-9]+")
_UUID_KINDS = ("GPU-", "MIG-")


class Visible(Record, frozen=True, kw_only=True):
    """GPUs that a process may see, in the order in which it numbers them.

    Attributes:
        names: of each, as the variable names it: a number, or a UUID as far as it was typed.
        gpus: the same as the driver describes them; `None` where it cannot be told which one a
            number means.
        variable: which one decides; empty where none is set.
        value: its text.
        hidden: it asks for no GPU at all.
        why_no_more: what ended the list before the variable did; empty where nothing did.
    """

    names: tuple[str, ...] = ()
    gpus: tuple[NvmlDevice | None, ...] = ()
    variable: str = ""
    value: str = ""
    hidden: bool = False
    why_no_more: str = ""

    def __str__(self) -> str:
        """For people: what is visible, and which variable says so."""
        listed = ", ".join(
            f"{place} ({label(gpu) if gpu is not None else name})"
            for place, (name, gpu) in enumerate(zip(self.names, self.gpus, strict=True))
        )
        more = f"; {self.why_no_more}" if self.why_no_more else ""
        if not self.variable:
            return f"Visible: {listed or 'none'}{more}"
        set_to = f"{self.variable}={self.value!r}"
        if self.hidden:
            return f"Visible: none, {set_to} hides all"
        return f"Visible: {listed or 'none'}, by {set_to}{more}"


def label(gpu: NvmlDevice) -> str:
    """A GPU for people: its name, and its UUID where it is a part of one."""
    name = gpu.name or "name unknown"
    part = gpu.uuid is not None and gpu.uuid.startswith("MIG-")
    return f"{name}, {gpu.uuid}" if part else name


def variable_of(environment: Mapping[str, str], *, hip: bool) -> str:
    """The variable that says last what a process sees; it is the one to narrow.

    Args:
        hip: torch is built for ROCm. HIP takes CUDA's variable too where its own is not set.
    """
    if hip and (HIP in environment or CUDA not in environment):
        return HIP
    return CUDA


def visible(environment: Mapping[str, str], gpus: Sequence[NvmlDevice]) -> Visible:
    """The NVIDIA GPUs that a process with these variables sees.

    Args:
        gpus: all, in the driver's order.
    """
    if CUDA not in environment:
        return _all_of(environment, gpus)
    value = environment[CUDA]
    if value.startswith(_UUID_KINDS):
        return _by_uuid(value, gpus)
    return _by_number(value, environment, gpus)


def knows_order(environment: Mapping[str, str], gpus: Sequence[NvmlDevice]) -> bool:
    """Whether CUDA's numbers are the driver's: asked for, or all GPUs are alike.

    By default CUDA puts the GPU that it takes for the fastest first, and numbers like ones as the
    driver does.
    """
    return environment.get(ORDER) == PCI_ORDER or len({device.name for device in gpus}) < 2


def asks_for_none(value: str) -> bool:
    """Whether the variable is set so that no GPU is seen, on purpose.

    >>> [asks_for_none(text) for text in ("", "-1", "NoDevFiles", "0", "7", "GPU-1")]
    [True, True, True, False, False, False]
    """
    return not value.startswith(_UUID_KINDS) and _number(value.split(",", maxsplit=1)[0]) < 0


def _all_of(environment: Mapping[str, str], gpus: Sequence[NvmlDevice]) -> Visible:
    """Without a variable: whole GPUs; where all are partitioned CUDA sees one part, the first."""
    whole = [device for device in gpus if not device.mig_enabled]
    if not whole:
        parts = [part for device in gpus for part in device.instances][:1]
        return Visible(
            names=tuple(device.uuid or "0" for device in parts),
            gpus=tuple(parts),
            why_no_more="" if parts else "every GPU is partitioned, and none has a part",
        )
    sure = knows_order(environment, whole)
    return Visible(
        names=tuple(map(str, range(len(whole)))),
        gpus=tuple(device if sure else None for device in whole),
    )


def _by_uuid(value: str, gpus: Sequence[NvmlDevice]) -> Visible:
    kind = value[:4]
    names: list[str] = []
    seen: list[NvmlDevice | None] = []
    why = ""
    for word in value.split(","):
        if not word.startswith(kind):
            why = f"{word!r} ends the list: it begins with {kind} and goes on so"
            break
        if word in names:
            return _repeated(value, word)
        fitting = _with_uuid(word, gpus)
        if len(fitting) != 1:
            times = "no GPU here has that UUID" if not fitting else "several UUIDs begin so"
            why = f"{word!r} ends the list: {times}"
            break
        names.append(word)
        seen.append(fitting[0])
    return Visible(
        names=tuple(names), gpus=tuple(seen), variable=CUDA, value=value, why_no_more=why
    )


def _by_number(value: str, environment: Mapping[str, str], gpus: Sequence[NvmlDevice]) -> Visible:
    if asks_for_none(value):
        return Visible(variable=CUDA, value=value, hidden=True)
    sure = knows_order(environment, gpus)
    numbers: list[int] = []
    why = ""
    for word in value.split(","):
        number = _number(word)
        if number in numbers:
            return _repeated(value, word)
        if not 0 <= number < len(gpus):
            why = f"{word.strip()!r} ends the list: the driver counts {len(gpus)} from 0"
            break
        numbers.append(number)
    return Visible(
        names=tuple(map(str, numbers)),
        gpus=tuple(_first_part(gpus[device]) if sure else None for device in numbers),
        variable=CUDA,
        value=value,
        why_no_more=why,
    )


def _repeated(value: str, word: str) -> Visible:
    why = f"{word.strip()!r} stands there twice, which makes the whole list invalid"
    return Visible(variable=CUDA, value=value, why_no_more=why)


def _first_part(gpu: NvmlDevice) -> NvmlDevice | None:
    """The GPU that a number means: of a partitioned one CUDA takes its first part."""
    if not gpu.mig_enabled:
        return gpu
    return gpu.instances[0] if gpu.instances else None


def _with_uuid(word: str, gpus: Sequence[NvmlDevice]) -> list[NvmlDevice | None]:
    """Those whose UUID begins so; for the older `MIG-GPU-UUID/i/j` which part cannot be told."""
    if word.startswith("MIG-GPU-"):
        parent = word.removeprefix("MIG-").partition("/")[0]
        return [
            None for device in gpus if device.mig_enabled and (device.uuid or "").startswith(parent)
        ]
    everything = [device for gpu in gpus for device in (gpu, *gpu.instances)]
    exact: list[NvmlDevice | None] = [device for device in everything if device.uuid == word]
    return exact or [device for device in everything if (device.uuid or "").startswith(word)]


def _number(word: str) -> int:
    """The number that a word begins with, as strtoul reads it; -1 without any.

    >>> [_number(text) for text in ("2", " 1gpu", "-1", "x", "")]
    [2, 1, -1, -1, -1]
    """
    match = _NUMBER.match(word.strip())
    return int(match[0]) if match else -1
