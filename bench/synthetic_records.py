"""Synthetic runs by formula, for the size and the drawing time of reports. No GPU was measured.

The device is called `Synthetic GPU`; step time is the longer of a host time and a device time that
grows with the batch, memory a straight line. Nothing here imitates a product.
"""

from __future__ import annotations

import math
from typing import Any

from batchadvisor.records import (
    Counters,
    DeviceInfo,
    Discovery,
    Goal,
    IdleShares,
    KernelTime,
    LoaderInfo,
    Memory,
    OptimizerInfo,
    Profile,
    RunRecord,
    ScriptInfo,
    Spread,
    Trial,
    Versions,
)
from batchadvisor.units import GIB

HOST_S = 0.009
SAMPLE_S = 95e-6
FIXED_BYTES = 3.1 * GIB
SAMPLE_BYTES = 0.029 * GIB
CAPACITY_BYTES = 40 * GIB
NUM_SAMPLES = 1_281_167
KERNELS = (
    "synthetic_gemm_bf16_128x128_ldg8_stages_64x3_tn",
    "synthetic_flash_attention_forward<float, 128, 64, true>",
    "synthetic_elementwise_kernel<4, &lambda(a, b)>",
    "synthetic_reduce_kernel<512, 1>",
    "synthetic_layer_norm_backward<c10::BFloat16>",
    "synthetic_adam_foreach_kernel",
    "ncclDevKernel_synthetic_AllReduce_Sum_bf16_RING_LL",
    "synthetic_copy_kernel_vectorized",
)


def run(num_sizes: int = 12, *, index: int = 0, strength: float = 1.0) -> RunRecord:
    """A finished run of one synthetic GPU: powers of two, the last one out of memory.

    Args:
        index: of the GPU.
        strength: device times are divided by it.
    """
    sizes = [2**power for power in range(num_sizes)]
    last = (CAPACITY_BYTES - FIXED_BYTES) / SAMPLE_BYTES
    fitting = [size for size in sizes if size <= last]
    trials = [_timed(at, size, strength) for at, size in enumerate(fitting)]
    trials += [_failed(len(trials) + at, size) for at, size in enumerate(sizes[len(fitting) :])]
    for size in (fitting[-3], fitting[-1]) * 2:
        trials.append(_timed(len(trials), size, strength, worker=1, purpose="confirm"))
    return RunRecord(
        state="finished",
        started_at="2000-01-01T00:00:00+00:00",
        command=("batchadvisor", "run", "synthetic.py"),
        script=ScriptInfo(path="synthetic.py"),
        goal=Goal(),
        versions=Versions(batchadvisor="0.1.0", python="3.11.7", torch="0.0 (synthetic)"),
        device=DeviceInfo(
            kind="cuda",
            name="Synthetic GPU",
            index=index,
            uuid=f"GPU-synthetic-{index}",
            total_bytes=CAPACITY_BYTES + GIB,
            capacity_bytes=CAPACITY_BYTES,
            capacity_source="made up",
        ),
        discovery=discovery(32, NUM_SAMPLES),
        trials=tuple(trials),
        stop_reason="the knee is bracketed",
        num_workers_started=2,
        elapsed_s=140.0,
        search_s=118.0,
    )


def samples(num: int = 1200, *, index: int = 0) -> list[dict[str, Any]]:
    """Rows as NVML's sampler writes them, ten a second."""
    rows = []
    for at in range(num):
        wave = math.sin(at / 37 + index)
        rows.append(
            {
                "trial": at // 100,
                "time_s": 1000.0 + at / 10,
                "utilization_pct": round(80 + 18 * wave, 1),
                "power_w": round(450 + 150 * wave, 1),
                "memory_used_bytes": int((10 + 8 * wave) * GIB),
                "sm_clock_mhz": 1900.0 - 30 * wave,
                "temperature_c": round(60 + 9 * wave),
            }
        )
    return rows


def _timed(ordinal: int, size: int, strength: float, **rest: Any) -> Trial:
    device_s = 0.0012 + SAMPLE_S * size / strength
    step_s = max(HOST_S, device_s) + 0.0004
    busy = 100 * device_s / step_s
    power = 180 + 4.6 * busy
    wobble = 1 + 0.004 * math.sin(ordinal * 1.7)
    values: dict[str, Any] = {
        "worker": 0,
        "kind": "timed",
        "purpose": "search",
        "outcome": "ok",
        "arrived_batch_size": size,
        "size_proof": "shape",
        "micro_batches": 1,
        "num_warmup_steps": 5,
        "step_s": _spread(step_s * wobble, 0.006),
        "samples_per_s": _spread(size / step_s / wobble, 0.006),
        "input_wait_s": _spread(step_s * 0.01, 0.2),
        "samples_per_joule": size / step_s / power,
        "memory": Memory(
            peak_bytes=int(FIXED_BYTES + SAMPLE_BYTES * size), peak_source="synthetic"
        ),
        "profile": _profile(step_s, busy, size),
        "counters": Counters(
            num_samples=40,
            window_s=4.0,
            utilization_pct=min(100.0, busy + 8),
            power_w=power,
            energy_j=4 * power,
            sm_active_pct=0.8 * busy,
        ),
        "elapsed_s": 6.0,
    }
    return Trial(ordinal=ordinal, batch_size=size, **{**values, **rest})


def _profile(step_s: float, busy: float, size: int) -> Profile:
    idle = 100 - busy
    return Profile(
        num_steps=3,
        busy_pct=busy,
        kernel_pct=busy * 0.97,
        compute_pct=busy * 0.9,
        communication_pct=busy * 0.1,
        exposed_communication_pct=busy * 0.07,
        exposed_copy_pct=busy * 0.03,
        sm_efficiency_pct=busy * min(1.0, 0.2 + 0.1 * math.log2(size + 1)),
        sm_efficiency_computing_pct=min(100.0, 20 + 10 * math.log2(size + 1)),
        occupancy_pct=min(58.0, 12 + 5 * math.log2(size + 1)),
        tensor_core_pct=38.0,
        tensor_core_unknown_pct=9.0,
        short_kernel_pct=max(2.0, 70 - 6 * math.log2(size + 1)),
        kernels_per_launch=1.0,
        device_wait_pct=busy * 0.2,
        operators_pct=70.0,
        input_wait_pct=1.0,
        idle=IdleShares(
            total_pct=idle,
            input_pct=idle * 0.05,
            synchronize_pct=idle * 0.05,
            launch_pct=idle * 0.3,
            call_pct=idle * 0.05,
            host_pct=idle * 0.45,
            launch_latency_pct=idle * 0.05,
            dependency_pct=idle * 0.02,
            unknown_pct=idle * 0.01,
            tail_pct=idle * 0.02,
        ),
        kernels=tuple(
            KernelTime(
                name=name,
                num_calls=36 * (at + 1),
                total_s=3 * step_s * busy / 100 / 2 ** (at + 1),
                occupancy_pct=55.0 - 4 * at,
            )
            for at, name in enumerate(KERNELS)
        ),
    )


def _failed(ordinal: int, size: int) -> Trial:
    return Trial(
        ordinal=ordinal,
        worker=0,
        batch_size=size,
        kind="timed",
        purpose="search",
        outcome="out_of_memory",
        detail="CUDA out of memory (synthetic). Tried to allocate 12.25 GiB.",
    )


def _spread(median: float, relative: float) -> Spread:
    low, high = median * (1 - relative), median * (1 + relative)
    return Spread(median=median, low=low, high=high, num_samples=40, confidence=0.9)


def discovery(
    native: int,
    num_samples: int,
    *,
    optimizer: str = "AdamW",
    learning_rate: float = 0.0003,
    num_parameters: int = 25_000_000,
    num_workers: int = 4,
    device: str = "cuda:0",
) -> Discovery:
    """One plain training loader, one optimizer, no normalisation layers known."""
    loader = LoaderInfo(
        ordinal=0,
        place=None,
        batch_size=native,
        num_samples=num_samples,
        drop_last=False,
        num_workers=num_workers,
        sampler="RandomSampler",
        iterable=False,
        steered="exact",
        trains=True,
    )
    steps = OptimizerInfo(
        ordinal=0,
        place=None,
        name=optimizer,
        learning_rate=learning_rate,
        num_parameters=num_parameters,
        trains=True,
    )
    return Discovery(
        loaders=(loader,),
        optimizers=(steps,),
        primary_loader=0,
        native_batch_size=native,
        micro_batches=1,
        parameter_device=device,
        num_parameters=num_parameters,
        norm_layers=None,
        setup_s=5.0,
        native_step_s=0.02,
    )
