"""The numbers in a refusal of memory: the bytes asked for, and who holds the device."""

from __future__ import annotations

import re

import msgspec

from ...records import DeviceInfo, RunRecord, Trial
from ...units import format_bytes

_UNITS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_SIZE = r"(\d+(?:\.\d+)?) ?(bytes|[KMGTPE]i?B)"
_ASKED = re.compile(
    rf"tried to allocate (?:more than )?{_SIZE}|unable to allocate {_SIZE}"
    rf"|(?:trying to allocate|allocating|CUDA (?:malloc|calloc|host alloc)(?: async)?) {_SIZE}",
    re.IGNORECASE,
)
_TOTAL = re.compile(rf"total capac\w*ty of {_SIZE}|{_SIZE} total capacity", re.IGNORECASE)
_OWN = re.compile(rf"this process has {_SIZE} memory in use", re.IGNORECASE)
_BY_TORCH = re.compile(rf"{_SIZE} is allocated by PyTorch", re.IGNORECASE)
_OTHER = re.compile(rf"\bprocess (\d+) has {_SIZE} memory in use", re.IGNORECASE)
ABSURD = 1000
"""A single request of so many times the device's memory is a fault, whatever the batch is."""
NO_DEVICE_BYTES = 1 << 50
"""No device has so much, where its memory is not known."""


class Request(msgspec.Struct, frozen=True):
    """One request that was refused.

    Attributes:
        num_bytes: that were asked for.
        total_bytes: of the device.
        own_bytes: what the process that asked held on it.
        others: what other processes held, by number, the most first.
    """

    num_bytes: int
    total_bytes: int | None = None
    own_bytes: int | None = None
    others: tuple[tuple[int, int], ...] = ()

    @property
    def others_bytes(self) -> int:
        """Bytes that all other processes held."""
        return sum(held for _, held in self.others)

    def is_absurd(self, batch_size: int | None, device_bytes: int | None) -> bool:
        """Whether no batch size could make it fit, were it in proportion to the batch.

        Args:
            batch_size: `None` where it is not known; then only a very large one is.
            device_bytes: where the words do not tell.
        """
        total = self.total_bytes or device_bytes
        if total is None:
            return self.num_bytes >= NO_DEVICE_BYTES
        return self.num_bytes > min(batch_size or ABSURD, ABSURD) * total

    def is_taken(self, promised_bytes: int | None = None) -> bool:
        """Whether it would have fit, had other processes not taken what was promised.

        Args:
            promised_bytes: what the script could have when the device was looked at; without, half
                of the device.
        """
        if self.total_bytes is None or self.own_bytes is None:
            return False
        half = self.total_bytes // 2
        promised = half if promised_bytes is None else min(promised_bytes, self.total_bytes)
        needed = self.own_bytes + self.num_bytes
        return needed <= promised and self.others_bytes > self.total_bytes - promised


def not_of_the_size(trial: Trial, device: DeviceInfo | None = None) -> str:
    """Why a refusal says nothing about the size of its trial; empty where it does.

    Args:
        device: as it was when it was looked at.
    """
    if trial.outcome != "out_of_memory":
        return ""
    if trial.aside:
        return worked_aside(trial.aside)
    request = request_of(trial.detail)
    promised = None if device is None else device.capacity_bytes
    return taken_by(request) if request is not None and request.is_taken(promised) else ""


def last_not_of_the_size(record: RunRecord) -> str:
    """Why the last failure says nothing about its size, where no process came after it."""
    last = record.trials[-1] if record.trials else None
    if last is None or last.worker < record.num_workers_started - 1:
        return ""
    return not_of_the_size(last, record.device)


def worked_aside(aside: str) -> str:
    """Says whose refusal it is where a loader fed the step that does not train."""
    return (
        f"memory was refused while the script worked on {aside}, which is not the one that "
        "trains: an evaluation, or another task"
    )


def taken_by(request: Request) -> str:
    """Who holds the memory."""
    held = [f"process {number} holds {format_bytes(held)}" for number, held in request.others]
    own = format_bytes(request.own_bytes or 0)
    total = format_bytes(request.total_bytes or 0)
    return f"{', '.join(held)} of the {total} of the GPU, the script {own}"


def request_of(detail: str) -> Request | None:
    """The request that the words of a refusal tell of; `None` where they name none.

    >>> request_of("CUDA out of memory. Tried to allocate 2.00 GiB").num_bytes == 2 << 30
    True
    """
    asked = _ASKED.search(detail)
    if asked is None:
        return None
    total = _bytes_of(_TOTAL.search(detail))
    own = _bytes_of(_OWN.search(detail))
    others = [(int(number), _bytes(held, unit)) for number, held, unit in _OTHER.findall(detail)]
    if own is None:
        # In a container torch does not know itself in the driver's list; nearest to what it holds.
        by_torch = _bytes_of(_BY_TORCH.search(detail)) or 0
        itself = min(
            (one for one in others if one[1] >= by_torch), key=lambda one: one[1], default=None
        )
        own = itself[1] if itself is not None else None
        others = [one for one in others if one is not itself]
    if own is not None and total is not None and own > total:
        own = None  # the driver did not tell, and torch prints 2^64 - 1
    others.sort(key=lambda one: -one[1])
    return Request(_bytes_of(asked) or 0, total, own, tuple(others))


def _bytes_of(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    number, unit = [group for group in found.groups() if group is not None][:2]
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * 1024 ** _UNITS[unit[0].lower()])
