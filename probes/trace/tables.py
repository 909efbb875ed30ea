"""Tables of operators and kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ...records import CallTime, KernelTime, Launcher, OperatorTime
from . import kineto_names as vocabulary
from .columns import Ranges
from .intervals import Floats, Ints, clip_any, length, union

LONG_CALLS = 0.20
"""Share of the window from which on calls of the GPU's API are named."""


_TENSOR_CORES: Final[dict[bool | None, Literal["yes", "no", "cannot tell"]]] = {
    True: "yes",
    False: "no",
    None: "cannot tell",
}

LaunchersOf: TypeAlias = Callable[[int], tuple[tuple[Launcher, ...], int]]
"""By the number of a name: the first launchers of what bears it, and how many there are."""


def nobody(_: int) -> tuple[tuple[Launcher, ...], int]:
    """Where nothing is known of it."""
    return (), 0


def operator_table(
    name: npt.NDArray[np.int32],
    self_time: Ints,
    names: tuple[str, ...],
    device_time: Ints | None = None,
    callers: LaunchersOf = nobody,
) -> tuple[OperatorTime, ...]:
    """CPU operators by self time, the most expensive first; ties by name.

    Args:
        name: of each call, its number in `names`.
        self_time: of each call, nanoseconds.
        names: texts.
        device_time: of each name, nanoseconds of the GPU's work launched in it; `None` without one.
        callers: of each name.
    """
    self_ns = np.zeros(len(names), np.int64)
    np.add.at(self_ns, name, self_time)
    calls = np.bincount(name, minlength=len(names))
    rows = sorted(np.flatnonzero(calls).tolist(), key=lambda i: (-int(self_ns[i]), names[i]))
    return tuple(
        OperatorTime(
            name=names[i],
            num_calls=int(calls[i]),
            self_s=int(self_ns[i]) / 1e9,
            device_s=None if device_time is None else int(device_time[i]) / 1e9,
            callers=(found := callers(i))[0],
            num_callers=found[1],
        )
        for i in rows
    )


def call_table(
    calls: Ranges, names: tuple[str, ...], start_ns: int, end_ns: int
) -> tuple[CallTime, ...]:
    """The calls of the GPU's API inside which the host was for long, the most first; ties by name.

    Args:
        calls: all calls.
        names: texts of the calls' `name`.
        start_ns, end_ns: the window.
    """
    window = end_ns - start_ns
    inside = (calls.end_ns > start_ns) & (calls.start_ns < end_ns)
    name = calls.name[inside]
    starts, ends = clip_any(calls.start_ns[inside], calls.end_ns[inside], start_ns, end_ns)
    total = np.zeros(len(names), np.int64)
    np.add.at(total, name, ends - starts)
    rows = []
    for row in np.flatnonzero(total > LONG_CALLS * window).tolist():
        own = name == row
        share = length(union(starts[own], ends[own])) / window
        if share > LONG_CALLS:
            rows.append(
                CallTime(
                    name=names[row],
                    num_calls=int(own.sum()),
                    share_pct=100 * share,
                    longest_s=int((ends - starts)[own].max()) / 1e9,
                )
            )
    return tuple(sorted(rows, key=lambda call: (-call.share_pct, call.name)))


def kernel_table(
    name: npt.NDArray[np.int32],
    duration: Ints,
    occupancy: Floats,
    names: tuple[str, ...],
    launchers: LaunchersOf = nobody,
) -> tuple[KernelTime, ...]:
    """GPU kernels by total time, the most expensive first; ties by name.

    Args:
        name: of each kernel, its number in `names`.
        duration: of each kernel, nanoseconds.
        occupancy: achieved occupancy of each kernel, percent, NaN if unknown.
        names: texts.
        launchers: of each name.
    """
    total = np.zeros(len(names), np.int64)
    np.add.at(total, name, duration)
    calls = np.bincount(name, minlength=len(names))
    known = np.isfinite(occupancy)
    weight = np.bincount(name[known], duration[known], len(names))
    weighted = np.bincount(name[known], duration[known] * occupancy[known], len(names))
    rows = sorted(np.flatnonzero(calls).tolist(), key=lambda i: (-int(total[i]), names[i]))
    return tuple(
        KernelTime(
            name=names[i],
            num_calls=int(calls[i]),
            total_s=int(total[i]) / 1e9,
            occupancy_pct=float(weighted[i] / weight[i]) if weight[i] > 0 else None,
            tensor_cores=_TENSOR_CORES[vocabulary.uses_tensor_cores(names[i])],
            launchers=(found := launchers(i))[0],
            num_launchers=found[1],
        )
        for i in rows
    )
