"""Where Keras trains, and that backend's own memory counters.

On a GPU under TensorFlow and JAX torch knows nothing; each of them counts what its own allocator
handed out. On a CPU all of them live in the process, and the kernel's peak is the truth.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ...records import DeviceInfo, Memory
from .device_probe import DeviceProbe, HostTimeline
from .torch_devices import CpuProbe, probe_for


def probe_of(keras: ModuleType, model: Any, limit_bytes: int | None) -> tuple[DeviceProbe, str]:
    """The probe for the device that the model trains on, and the device's name."""
    backend = keras.backend.backend()
    if backend == "torch":
        device = torch.device(model.trainable_variables[0].value.device)
        return probe_for(device, limit_bytes), str(device)
    if backend == "tensorflow":
        tf = sys.modules["tensorflow"]  # Keras has loaded it
        gpus = tf.config.list_logical_devices("GPU")
        if gpus:
            return _tensorflow_gpu(tf, gpus[0], limit_bytes), "cuda"
    elif backend == "jax":
        first = sys.modules["jax"].devices()[0]
        if first.platform == "gpu":
            return _jax_gpu(first, limit_bytes), "cuda"
    return CpuProbe(limit_bytes), "cpu"


class CounterProbe(HostTimeline):
    """A GPU whose memory a backend counts. Every step was waited for when it is told.

    Args:
        name: of the device.
        capacity_bytes: what the backend can have, `None` where it does not say.
        peak: reads the peak in bytes.
        reset: starts it anew; `None` where the backend cannot.
    """

    def __init__(
        self,
        name: str,
        capacity_bytes: int | None,
        source: str,
        *,
        peak: Callable[[], int],
        reset: Callable[[], None] | None,
        limit_bytes: int | None,
    ) -> None:
        self._name = name
        self._capacity = (capacity_bytes or 0, source)
        self._peak = peak
        self._reset = reset
        self._limit_bytes = limit_bytes

    def info(self) -> DeviceInfo:
        total, source = self._capacity
        capacity = total
        if self._limit_bytes is not None and (not total or self._limit_bytes < total):
            capacity, source = self._limit_bytes, "--memory-limit, not enforced"
        return DeviceInfo(
            kind="cuda",
            name=self._name,
            index=0,
            total_bytes=total,
            capacity_bytes=capacity,
            capacity_source=source,
            limit_bytes=self._limit_bytes,
        )

    def reset_peaks(self) -> None:
        gc.collect()
        if self._reset is not None:
            self._reset()

    def read_memory(self) -> Memory:
        since = "the process" if self._reset is None else "the window"
        return Memory(
            peak_bytes=self._peak(),
            peak_source=f"peak of the backend's allocator since the start of {since}",
            unavailable=dict.fromkeys(
                ("allocated_bytes", "reserved_bytes", "num_alloc_retries"),
                "the backend has no such counter",
            ),
        )


def _tensorflow_gpu(tf: Any, device: Any, limit_bytes: int | None) -> CounterProbe:
    name = device.name.partition("device:")[2] or "GPU:0"
    physical = tf.config.list_physical_devices("GPU")[0]
    details = tf.config.experimental.get_device_details(physical)
    free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None
    return CounterProbe(
        str(details.get("device_name", name)),
        free,
        "free memory of the device when training began",
        peak=lambda: int(tf.config.experimental.get_memory_info(name)["peak"]),
        reset=lambda: tf.config.experimental.reset_memory_stats(name),
        limit_bytes=limit_bytes,
    )


def _jax_gpu(device: Any, limit_bytes: int | None) -> CounterProbe:
    stats = device.memory_stats() or {}
    return CounterProbe(
        str(device.device_kind),
        stats.get("bytes_limit"),
        "what JAX reserved for itself",
        peak=lambda: int((device.memory_stats() or {}).get("peak_bytes_in_use", 0)),
        reset=None,
        limit_bytes=limit_bytes,
    )
