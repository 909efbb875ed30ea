"""Why a GPU stood still.

A gap is a time in which nothing at all ran on the device, over all its streams. The call that
launched the activity which ends the gap divides it: until the call has returned the device waits
for the host, from then on for its own start or for what the activity depends on. A gap is not the
host's because a call began in it: the host may then sit in a copy that waits for the device.
"""

from __future__ import annotations

from typing import TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from ...records import IdleShares
from ...records.anatomy import IdleCause
from .columns import Activities, Ranges
from .intervals import EMPTY, IntervalSet, Ints, complement, merge, overlaps, subtract, union
from .kineto_names import MEMCPY
from .steps import UNKNOWN

LAUNCH_LATENCY_NS = 30_000
"""A queued activity that starts within this time after the one before it waited for nothing but
its own start on the device."""


CAUSES: tuple[IdleCause, ...] = get_args(IdleCause)
"""In the order in which `IdlePieces.cause` counts them."""
_NUM_HOST = CAUSES.index("host") + 1
"""The first of them are the host's, in the order of `HostCalls.exclusive`."""
_EVER = 2**62

Causes: TypeAlias = tuple[IntervalSet, ...]
"""What the host did, in the order of `HostCalls` and then everything else; each moment is in one
of them."""


class HostCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the host's work, as sets of intervals.

    Attributes:
        inputs: waiting for the DataLoader.
        synchronize: API calls that wait for the device.
        launches: API calls that launch kernels.
        calls: all API calls.
    """

    inputs: IntervalSet
    synchronize: IntervalSet
    launches: IntervalSet
    calls: IntervalSet

    def exclusive(self) -> Causes:
        """The sets without what those before them have, and the time that is in none."""
        sets: list[IntervalSet] = []
        before = EMPTY
        for covered in (self.inputs, self.synchronize, self.launches, self.calls):
            sets.append(subtract(covered, before))
            before = merge(before, covered)
        return (*sets, complement(before, -_EVER, _EVER))


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """The gaps of one device in a window, in order; one row a gap.

    Attributes:
        start_ns, end_ns: when nothing ran.
        split_ns: until then it waited for the host; `start_ns` where that is not known.
        ended_by: row of the activity that ends it; -1 at the window's end.
        known: whether the call that launched this activity is in the trace.
        tail: whether the gap lasts to the end of the window.
        window_ns: when the window begins.
    """

    window_ns: int
    start_ns: Ints
    end_ns: Ints
    split_ns: Ints
    ended_by: Ints
    known: npt.NDArray[np.bool_]
    tail: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, activities: Activities, returned: Ints, start_ns: int, end_ns: int) -> Gaps:
        """The gaps in [start_ns, end_ns].

        Args:
            activities: of the device, sorted by start.
            returned: when the call that launched each returned, `UNKNOWN` if it is not known.
            start_ns, end_ns: the window.
        """
        busy = union(activities.start_ns, activities.end_ns)
        start, end = complement(busy, start_ns, end_ns)
        tail = end >= end_ns
        ended_by = np.searchsorted(activities.start_ns, end)
        ended = ~tail & (ended_by < len(activities))
        ended_by[~ended] = -1
        back = np.full(len(start), UNKNOWN, np.int64)
        back[ended] = returned[ended_by[ended]]
        known = back > UNKNOWN
        return cls(
            window_ns=start_ns,
            start_ns=start,
            end_ns=end,
            split_ns=np.where(known, np.clip(back, start, end), start),
            ended_by=ended_by,
            known=known,
            tail=tail,
        )


class IdlePieces(msgspec.Struct, frozen=True, kw_only=True):
    """The idle time of one device in a window, cut where its cause changes; one row a piece.

    The pieces are in order, do not overlap, and add up to the gaps. All that is said of idle time
    is added up from them.

    Attributes:
        start_ns, end_ns: when.
        cause: position in `CAUSES`.
        lost_ns: so much of it would not be there if the host had never waited for the device.
        ended_by: row of the activity that ended the gap, as `Gaps` counts them; -1 at the window's
            end.
    """

    start_ns: Ints
    end_ns: Ints
    cause: npt.NDArray[np.int8]
    lost_ns: Ints
    ended_by: Ints

    @classmethod
    def of(cls, gaps: Gaps, host: Causes, *, waits: IntervalSet = EMPTY) -> IdlePieces:
        """The pieces of a device's gaps.

        Args:
            gaps: of the device.
            host: what the host did, `HostCalls.exclusive`.
            waits: when the host waited for the device, copies that block included.
        """
        starts, ends, causes, rows = [], [], [], []
        late = gaps.split_ns > gaps.start_ns
        late_rows = np.flatnonzero(late)
        waited = gaps.start_ns[late], gaps.split_ns[late]
        for number, covered in enumerate(host):
            begin, end, of = overlaps(waited, covered)
            starts.append(begin)
            ends.append(end)
            causes.append(np.full(len(begin), number, np.int8))
            rows.append(late_rows[of])
        rest = np.flatnonzero(gaps.end_ns > gaps.split_ns)
        starts.append(gaps.split_ns[rest])
        ends.append(gaps.end_ns[rest])
        causes.append(_after_the_launch(gaps)[rest])
        rows.append(rest)
        start, gap = np.concatenate(starts), np.concatenate(rows)
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.concatenate(ends)[order]
        cause = np.concatenate(causes)[order]
        hosts = np.where(cause < _NUM_HOST, end - start, 0)
        return cls(
            start_ns=start,
            end_ns=end,
            cause=cause,
            lost_ns=_lost_to_waits(hosts, _waited_before(waits, end, gaps.window_ns)),
            ended_by=gaps.ended_by[gap[order]],
        )

    def total_ns(self) -> dict[IdleCause, int]:
        """Nanoseconds by cause, every cause."""
        lengths = self.end_ns - self.start_ns
        total = np.zeros(len(CAUSES), np.int64)
        np.add.at(total, self.cause, lengths)
        return dict(zip(CAUSES, total.tolist(), strict=True))

    def drained_ns(self) -> int:
        """What waits for the device cost, where the host did not wait for its DataLoader."""
        return int(self.lost_ns[self.cause > 0].sum())


def _after_the_launch(gaps: Gaps) -> npt.NDArray[np.int8]:
    """The cause of what is left of each gap once the launch call has returned."""
    quick = gaps.end_ns - gaps.split_ns < LAUNCH_LATENCY_NS
    launched = np.where(quick, CAUSES.index("launch_latency"), CAUSES.index("dependency"))
    unlaunched = np.where(gaps.tail, CAUSES.index("tail"), CAUSES.index("unknown"))
    return np.where(gaps.known & ~gaps.tail, launched, unlaunched).astype(np.int8)


def idle_shares(pieces: IdlePieces, window_ns: int) -> IdleShares:
    """The idle time of one device by cause, as shares of a window that is not empty."""
    causes = pieces.total_ns()
    return IdleShares(
        total_pct=100.0 * sum(causes.values()) / window_ns,
        drained_pct=100.0 * pieces.drained_ns() / window_ns,
        **{f"{cause}_pct": 100.0 * ns / window_ns for cause, ns in causes.items()},
    )


def blocking_calls(activities: Activities, launches: Ranges) -> npt.NDArray[np.bool_]:
    """Which API calls came back only after the copy that they launched had ended.

    `.item()` and copies from memory that is not pinned do so, whatever their call is named.
    """
    copies = (activities.kind == MEMCPY) & (activities.correlation >= 0)
    order = np.lexsort((activities.end_ns[copies], activities.correlation[copies]))
    correlation = activities.correlation[copies][order]
    ends = activities.end_ns[copies][order]
    blocking = np.zeros(len(launches), bool)
    if len(correlation) == 0 or len(launches) == 0:
        return blocking
    last = np.searchsorted(correlation, launches.correlation, side="right") - 1  # a graph's copies
    index = np.maximum(last, 0)
    blocking[:] = (correlation[index] == launches.correlation) & (launches.end_ns >= ends[index])
    return blocking


def _waited_before(waits: IntervalSet, times: Ints, window_ns: int) -> Ints:
    """How long the host had waited for the device by each time.

    Args:
        waits: when it did.
        times: in order.
        window_ns: what ended before is of another window; a wait that reaches into this one counts
            as a whole.
    """
    starts, ends = waits
    first = int(np.searchsorted(ends, window_ns))
    starts, ends = starts[first:], ends[first:]
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends - starts)])
    begun = np.searchsorted(starts, times)
    last = np.maximum(begun - 1, 0)
    ahead = np.maximum(ends[last] - times, 0) if len(ends) else np.zeros(len(times), np.int64)
    return before[begun] - np.where(begun > 0, ahead, 0)


def _lost_to_waits(hosts: Ints, waited: Ints) -> Ints:
    """How much shorter each piece were if the host had not waited.

    A host that does not wait calls everything earlier by as long as it had waited until then. The
    device then stands still for as much less, until all of that is used up: the sum over the pieces
    so far is at most what was waited so far.

    Args:
        hosts: for how long the device waited for the host in each piece, ns; 0 in pieces of other
            causes.
        waited: how long the host had waited for the device by the end of each piece.
    """
    sums = np.cumsum(hosts)
    if len(sums) == 0:
        return sums
    lost = sums + np.minimum(np.minimum.accumulate(waited - sums), 0)
    return np.diff(lost, prepend=0)
