"""The table of failures in docs/reading.md: what this version makes of the words of each kind."""

from __future__ import annotations

from batchadvisor.advisor.explain.known_failures import known_failure, known_refusal
from batchadvisor.probes.devices.device_faults import device_fault
from batchadvisor.probes.process.faults import is_out_of_memory, outcome_of_exit
from batchadvisor.probes.process.refusals import headline

from .. import pages
from .test_last_words import NCCL, NO_REFUSALS, NVML, PINNING, REFUSALS

GIB = 1 << 30
TAKEN = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.64 GiB of "
    "which 36.00 MiB is free. Process 4242 has 22.70 GiB memory in use. Including non-PyTorch "
    "memory, this process has 768.00 MiB memory in use."
)
ROWS = {
    "`CUDA out of memory. Tried to allocate 2.00 GiB`": "CUDA out of memory. Tried to allocate "
    "2.00 GiB. GPU 0 has a total capacity of 23.64 GiB",
    '`NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp"`': NVML,
    "`level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)`": REFUSALS[
        "SYCL"
    ],
    "`Cuda failure 2 'out of memory'` of NCCL": NCCL,
    "`Error out of memory at line 380 in file ...`, then exit code 1": REFUSALS["bitsandbytes"],
    "`Caught RuntimeError in pin memory thread ... CUDA error: out of memory`": PINNING,
    "`Process 4242 has 22.70 GiB memory in use ... this process has 768.00 MiB`": TAKEN,
    "`Tried to allocate 125537.00 GiB` on a GPU of 24": TAKEN.replace("20.00 M", "125537.00 G"),
    "a refusal while a batch of another loader is worked on": "CUDA out of memory.",
    "`an illegal memory access` at batch 33, with a tensor of 33 x 2048 x 32768": "CUDA error: an "
    "illegal memory access was encountered",
    "`only supports output tensors with less than INT_MAX elements`, above a size that ran": "only "
    "supports output tensors with less than INT_MAX elements",
    "`invalid configuration argument` at batch 65,536": "CUDA error: invalid "
    "configuration argument",
    "`level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)`": NO_REFUSALS[
        "a lost device"
    ],
    "`Input tensor at index 3 has invalid shape [2, 1, 9], but expected [2, 4, 9]`": "Input tensor "
    "at index 3 has invalid shape [2, 1, 9], but expected [2, 4, 9]",
}
"""How a page shows the words, and the words."""
TOO_LARGE = ("the size needs too much memory", "Smaller sizes are tried.")


def meaning(shown: str, words: str) -> tuple[str, str]:
    """What it means and what to do, by the code that makes the answers."""
    refused = is_out_of_memory(RuntimeError(words))
    if "exit code 1" in shown:
        refused = outcome_of_exit(1, killed_for_memory=False, last_words=words)[0] != "crashed"
    detail = headline(words, refused=refused)
    if refused:
        aside = (
            "a batch of 64 of the loader made at train.py:31" if "another loader" in shown else ""
        )
        known = known_refusal(detail, aside, batch_size=8, device_bytes=24 * GIB)
        return TOO_LARGE if known is None else (known.what, known.remedy)
    lost = device_fault(detail)
    if lost is not None:
        return lost.what, lost.remedy
    size = 65_536 if "65,536" in shown else 33
    shape = (33, 2048, 32_768) if "2048" in shown else ()
    found = known_failure(detail, size, shape, smaller_ran="that ran" in shown)
    assert found is not None, shown
    return found.what, found.remedy


def test_the_table_is_what_the_code_says() -> None:
    lines = ["| what is printed | what it means | what to do |", "|---|---|---|"]
    lines += [f"| {shown} | {' | '.join(meaning(shown, ROWS[shown]))} |" for shown in ROWS]
    table = "\n".join(lines)
    pages.check_text(pages.ROOT / "docs/reading.md", "faults", f"\n{table}\n")
