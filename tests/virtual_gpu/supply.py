"""Power, energy, clocks and what slows a device down; counters move as seldom as real ones."""

from bisect import bisect_right
from dataclasses import dataclass

NS = 1_000_000_000
CAP, HEAT = 0x4, 0x40
"""NVML's bits of a software power cap and of hardware that slows down for heat."""


@dataclass(frozen=True)
class Phase:
    """A time in which kernels that start are slower by a factor, with NVML's bits for why."""

    from_s: float = 0.0
    until_s: float = float("inf")
    slower: float = 1.0
    bits: int = 0
    mhz: int = 1500


ORDINARY = Phase()


class Supply:
    """What a device takes, and what its driver says about it.

    Args:
        idle_w, busy_w: idle, and while a kernel runs.
        update_ms: between two moves of the energy counter.
        averaged_s: over so long the driver averages power and utilisation.
        phases: of heat, of a cap; at other times nothing slows the device down.
    """

    def __init__(self, idle_w=80.0, busy_w=300.0, *, update_ms=50.0, averaged_s=1.0, phases=()):
        self.idle_w, self.busy_w = idle_w, busy_w
        self.update_ns = round(1e6 * update_ms)
        self.averaged_ns = round(NS * averaged_s)
        self._phases = phases
        # Stretches of work: begin, end, watts above idle, and what all before them came to.
        self._starts = []
        self._ends = []
        self._watts = []
        self._busy_ns = []
        self._joules = []

    def phase(self, at_ns):
        inside = (part for part in self._phases if part.from_s * NS <= at_ns < part.until_s * NS)
        return next(inside, ORDINARY)

    def add(self, start, end, phase, watts):
        """A kernel runs; kernels come in order of time."""
        extra_w = (self.busy_w if watts is None else watts) - self.idle_w
        if self._ends and self._ends[-1] == start and self._watts[-1] == extra_w:
            self._ends[-1] = end
            return
        busy_ns, joules = self._until(start)
        self._starts.append(start)
        self._ends.append(end)
        self._watts.append(extra_w)
        self._busy_ns.append(busy_ns)
        self._joules.append(joules)

    def _until(self, at_ns):
        """Busy time and joules above idle up to a moment."""
        place = bisect_right(self._starts, at_ns) - 1
        if place < 0:
            return 0, 0.0
        ran_ns = min(at_ns, self._ends[place]) - self._starts[place]
        joules = self._joules[place] + self._watts[place] * ran_ns / NS
        return self._busy_ns[place] + ran_ns, joules

    def energy_j(self, at_ns):
        """The truth: all that was taken since time 0."""
        return self.idle_w * at_ns / NS + self._until(at_ns)[1]

    def told_mj(self, now_ns):
        """The energy counter: the truth of its last move."""
        return int(1e3 * self.energy_j(now_ns // self.update_ns * self.update_ns))

    def told_mw(self, now_ns):
        """Power as the driver averages it."""
        before_ns = max(0, now_ns - self.averaged_ns)
        joules = self.energy_j(now_ns) - self.energy_j(before_ns)
        return int(1e3 * joules * NS / max(1, now_ns - before_ns))

    def told_pct(self, now_ns):
        """Utilisation as the driver averages it."""
        before_ns = max(0, now_ns - self.averaged_ns)
        busy_ns = self._until(now_ns)[0] - self._until(before_ns)[0]
        return round(100 * busy_ns / max(1, now_ns - before_ns))

    def is_busy(self, now_ns):
        place = bisect_right(self._starts, now_ns) - 1
        return place >= 0 and now_ns < self._ends[place]
