"""Puts a virtual GPU in the place of `torch.cuda` and of the process's clocks."""

import time
from types import SimpleNamespace

import torch

NAME = "Virtual GPU"


def install(gpu, patch, *, uuid=None):
    """From now on `torch.cuda` and the host's clocks are the machine's.

    Only what this project asks of torch is there; anything else fails as without a GPU. The UUID
    is without its prefix, as torch gives it.
    """

    def stats(*_):
        return {
            "num_alloc_retries": gpu.num_retries,
            "num_ooms": gpu.num_ooms,
            "allocated_bytes.all.current": gpu.allocated_bytes,
            "reserved_bytes.all.current": gpu.reserved_bytes,
        }

    def stats_nested(*_):
        return {
            "allocated_bytes": {"all": {"current": gpu.allocated_bytes}},
            "reserved_bytes": {"all": {"current": gpu.reserved_bytes}},
        }

    def limit(share, *_):
        gpu.limit_bytes = int(share * gpu.capacity_bytes)

    functions = {
        "set_per_process_memory_fraction": limit,
        "Event": gpu.event,
        "current_stream": lambda *_: gpu.current_stream,
        "synchronize": lambda *_: gpu.synchronize(),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: gpu.capturing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "memory_stats": stats,
        "memory_stats_as_nested_dict": stats_nested,
        "mem_get_info": lambda *_: (gpu.free_bytes, gpu.capacity_bytes),
        "memory_allocated": lambda *_: gpu.allocated_bytes,
        "memory_reserved": lambda *_: gpu.reserved_bytes,
        "max_memory_allocated": lambda *_: gpu.peak_allocated_bytes,
        "max_memory_reserved": lambda *_: gpu.peak_reserved_bytes,
        "memory_snapshot": lambda *_, **__: gpu.segments(),
        "empty_cache": gpu.empty_cache,
        "reset_peak_memory_stats": lambda *_: gpu.reset_peaks(),
        "get_device_properties": lambda *_: SimpleNamespace(
            name=NAME, total_memory=gpu.capacity_bytes, multi_processor_count=100, uuid=uuid
        ),
    }
    for name, function in functions.items():
        patch.setattr(torch.cuda, name, function)
    clock = gpu.clock
    patch.setattr(time, "perf_counter_ns", clock)
    patch.setattr(time, "perf_counter", lambda: clock() / 1e9)
    patch.setattr(time, "monotonic", lambda: clock() / 1e9)
    patch.setattr(time, "sleep", lambda seconds: clock.pass_ms(1e3 * seconds))
