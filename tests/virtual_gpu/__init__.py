"""A GPU that exists on paper: it works behind the host as a real one does, in virtual time.

`device.py` is the machine: a clock, a launch queue with a depth, streams, events, kernels with
durations, an allocator with reserved and allocated bytes. `torch_cuda.py` puts it in the place of
`torch.cuda`'s functions, so that the code of this project that talks to torch runs unchanged.
Truth is what the machine itself counts, so tests can plant it.
"""

from .device import Clock, Event, Graph, Stream, VirtualGpu
from .torch_cuda import install

__all__ = ["Clock", "Event", "Graph", "Stream", "VirtualGpu", "install"]
