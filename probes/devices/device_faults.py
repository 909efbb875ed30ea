"""CUDA's messages of a GPU that failed itself, while the script on it did not.

The texts are those of `cudaGetErrorString`, of NVML's `nvmlErrorString` and of torch, as they stand
in reports of users; they were not provoked here.
"""

from __future__ import annotations

import msgspec


class DeviceFault(msgspec.Struct, frozen=True):
    """A failure of the device.

    Attributes:
        what: in a few words.
        remedy: what to do.
    """

    what: str
    remedy: str


_TAKEN = DeviceFault(
    "the GPU lets nobody else in: another process holds it, or its compute mode is exclusive",
    "Look at nvidia-smi for the process and the compute mode (-q -d COMPUTE), or choose another "
    "GPU with --device cuda:N.",
)
_GONE = DeviceFault(
    "the GPU is gone: it fell off the bus, or the driver lost it",
    "Look at nvidia-smi and the kernel's log (Xid); what was measured is kept.",
)
_LOST = DeviceFault(
    "the GPU was lost: its driver reset it, or it does not answer",
    "Look at the kernel's log (dmesg); what was measured is kept.",
)
_MEMORY_BROKEN = DeviceFault(
    "the GPU's memory has an error that cannot be corrected",
    "Look at nvidia-smi -q -d ECC; the GPU has to be reset. What was measured is kept.",
)
_TEXTS = (
    ("cuda-capable devices are busy or unavailable", _TAKEN),
    ("cuda-capable device(s) is/are busy or unavailable", _TAKEN),
    ("exclusive-thread device already in use", _TAKEN),
    ("gpu is lost", _GONE),
    ("fallen off the bus", _GONE),
    ("unable to determine the device handle for gpu", _GONE),
    ("no cuda-capable device is detected", _GONE),
    ("no cuda gpus are available", _GONE),
    ("uncorrectable ecc error", _MEMORY_BROKEN),
    ("error_device_lost", _LOST),  # of SYCL, by its name
    ("backend failed with error: 20", _LOST),
)


def device_fault(text: str) -> DeviceFault | None:
    """Finds the fault of the device in an exception's words; `None` where they tell of none.

    >>> device_fault("CUDA error: all CUDA-capable devices are busy or unavailable").what[:7]
    'the GPU'
    >>> device_fault("CUDA error: device-side assert triggered") is None
    True
    """
    lower = text.lower()
    return next((fault for part, fault in _TEXTS if part in lower), None)
