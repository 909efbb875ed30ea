"""Memory that a step keeps and the next one does not give back."""

from __future__ import annotations

from .base import Count, Record


class KeptTensors(Record, frozen=True, kw_only=True):
    """Tensors that live more after some steps than before, counted between steps after a
    collection.

    Attributes:
        num_steps: optimizer steps between the two looks.
        more_tensors: Python's tensors that live more.
        more_bytes: of their storages.
        more_nodes: nodes of autograd graphs that live more, as far as they were counted.
        with_graph: whether most of what is new is held with the graph that made it.
        holder: what holds most of it, as the script names it; empty where that is unknown.
        holder_kind: its type.
        is_bounded: whether the holder has a largest length (a deque, `itertools.cycle`), so that it
            will end.
    """

    num_steps: Count
    more_tensors: int
    more_bytes: int
    more_nodes: int = 0
    with_graph: bool = False
    holder: str = ""
    holder_kind: str = ""
    is_bounded: bool = False


class MemoryCreep(Record, frozen=True, kw_only=True):
    """Memory between two steps that rises with every block of steps.

    Attributes:
        source: what was read.
        first_bytes, last_bytes: the lows of the first and the last block.
        num_steps: from the one to the other.
        kept: what was seen to live more, `None` where nobody could look.
        not_looked: why nobody did: what rises may be rubbish then.
    """

    source: str
    first_bytes: int
    last_bytes: int
    num_steps: Count
    kept: KeptTensors | None = None
    not_looked: str = ""

    @property
    def step_bytes(self) -> float:
        """Bytes that a step adds."""
        return (self.last_bytes - self.first_bytes) / self.num_steps
