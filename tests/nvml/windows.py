"""Windows of the sampler over the stand-in, on a clock that a test moves."""

from batchadvisor.probes.nvml import windows
from batchadvisor.probes.nvml.sampler import NvmlSampler

MIB = 1024**2
GPM = {"sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct"}
PCIE = {"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"}
QUIET = {"period_s": 60.0}  # the thread samples once, the rest is the edges'


def missing(counters):
    """Fields without a value; each must have a reason and no other may."""
    empty = {
        field
        for field in windows.MEASURED
        if getattr(counters, field) is None or field in counters.unavailable
    }
    assert counters.unavailable.keys() == empty
    assert all(counters.unavailable.values())
    return empty


def window_of(gpu, clock, lasted_s=5.0, *, steady_s=0.0, meanwhile=lambda: None, **options):
    """The counters of one window of a GPU on a clock that jumps."""
    with NvmlSampler(gpu, clock=clock, **QUIET, **options) as sampler:
        sampler.begin(steady_s)
        meanwhile()
        clock.advance(lasted_s)
        return sampler.end()


def window(clock, lasted_s=5.0, **options):
    """The same of the first GPU."""
    return window_of(0, clock, lasted_s, **options)
