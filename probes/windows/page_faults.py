"""What page faults cost the steps of a script on a CPU: their number, and the price of one.

glibc gives memory that a step frees back to the system: blocks from a threshold on at once, the end
of its heap when more than another threshold is free there (mallopt(3)). The next step gets it anew,
page by page, each cleared by the kernel. How much of a step that is depends on the sizes that the
process had before and on where its blocks happen to lie: two processes of one script differ.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from ...records.quality import PageFaults

WORTH_S = 1e-6
WORTH_SHARE = 0.02
"""A fault takes no less (1.5 to 2.8 µs were measured on two virtual cores); where so many do not
reach this share of a step, the price of one is not measured."""
REGION_BYTES = 4 << 20
TRIES = 5
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_",
             "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")  # fmt: skip
"""Each of them ends glibc's own choice of the thresholds (mallopt(3))."""


def page_faults(counts: Sequence[float | None], step_s: float) -> PageFaults | None:
    """What the page faults of steps cost.

    Args:
        counts: minor faults of each step.
        step_s: seconds of a usual step.

    Returns:
        `None` where they are counted for fewer than two steps, or too few to matter.
    """
    known = sorted(count for count in counts if count is not None)[:-1]
    if not known:
        return None
    num = sum(known) / len(known)  # without the largest: a heap that grows once is no step's cost
    if num * WORTH_S < WORTH_SHARE * step_s:
        return None
    each_s = _price_s()
    if each_s is None:
        return None
    return PageFaults(num=num, each_s=each_s, allocator=_allocator(os.environ))


def _price_s() -> float | None:
    """Seconds of one fault: what a new region takes longer to fill than it takes again."""
    import resource  # where faults were counted it is there

    new_s, again_s, num = [], [], 0
    for _ in range(TRIES):
        with mmap.mmap(-1, REGION_BYTES) as region:
            held = ctypes.c_char.from_buffer(region)
            begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            moments = [time.perf_counter()]
            for _ in range(2):
                ctypes.memset(ctypes.addressof(held), 0, REGION_BYTES)
                moments.append(time.perf_counter())
            num = max(num, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
            del held
        new_s.append(moments[1] - moments[0])
        again_s.append(moments[2] - moments[1])
    # The least of each: what else ran meanwhile is in neither.
    return max(0.0, min(new_s) - min(again_s)) / num if num else None


def _allocator(
    environment: Mapping[str, str],
) -> Literal["glibc", "glibc, set by its variables", "other"]:
    preloaded = environment.get("LD_PRELOAD", "")
    if platform.libc_ver()[0] != "glibc" or "malloc" in preloaded:
        return "other"
    return "glibc, set by its variables" if set(VARIABLES) & set(environment) else "glibc"
