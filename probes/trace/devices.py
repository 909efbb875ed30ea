"""Metrics of one GPU in any window."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ...records import Copies, IdleShares, LongestGap
from . import intervals, occupancy
from . import kineto_names as vocabulary
from .columns import Activities, DeviceProperties
from .gaps import Causes, Gaps, IdlePieces, idle_shares
from .intervals import Ints
from .results import DeviceMetrics
from .steps import LaunchCalls

SHORT_KERNEL_NS = 10_000
GRIDS_STATED = 0.9
"""Share of the kernels' time of which the grids must be known for an efficiency of all of it.
Kernels of a graph have none on AMD's devices, and would count as empty."""

EMPTY_WINDOW = "the window is empty"
_NO_KERNELS = "no kernel ran in the window"
_NO_COMPUTE = "no kernel other than communication ran in the window"
_Rows = npt.NDArray[np.bool_]


class NameFlags:
    """Facts that the names of a trace tell, one entry for each name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.communication = np.array([vocabulary.is_communication(n) for n in names], bool)
        tensor = [vocabulary.uses_tensor_cores(n) for n in names]
        self.tensor_cores = np.array([known is True for known in tensor], bool)
        self.tensor_unknown = np.array([known is None for known in tensor], bool)


class Device:
    """The activities of one GPU, sorted, with what is computed once for all windows.

    Args:
        number: of the GPU.
        activities: of all GPUs.
        calls: what launched each.
        properties: what the trace says of the GPU.
        flags: what the trace's names say.
        waits: when the host waited for the device.

    Attributes:
        rows: of its activities among those of all GPUs.
    """

    def __init__(
        self,
        number: int,
        activities: Activities,
        calls: LaunchCalls,
        properties: DeviceProperties | None,
        flags: NameFlags,
        *,
        waits: intervals.IntervalSet = intervals.EMPTY,
    ) -> None:
        rows = np.flatnonzero(activities.device == number)
        order = rows[np.lexsort((activities.end_ns[rows], activities.start_ns[rows]))]
        self.number = number
        self.rows = order
        self.properties = properties
        self.flags = flags
        self.waits = waits
        self.activities = activities.select(order)
        self.calls = calls.select(order)
        self.reach = np.maximum.accumulate(self.activities.end_ns)
        self.occupancy = occupancy.corrected_pct(self.activities, properties)
        self.blocks = occupancy.blocks_per_sm(self.activities, properties)

    def metrics(self, host: Causes, start_ns: int, end_ns: int) -> DeviceMetrics:
        """The metrics in [start_ns, end_ns]."""
        return self._view(start_ns, end_ns).metrics(host)

    def idle(self, host: Causes, start_ns: int, end_ns: int) -> IdlePieces:
        """The idle time in [start_ns, end_ns], of which the metrics are the sums.

        What ended a gap is a row of the activities of all GPUs.
        """
        view = self._view(start_ns, end_ns)
        pieces = IdlePieces.of(view.gaps, host, waits=self.waits)
        known = pieces.ended_by >= 0
        ended_by = np.full(len(known), -1, np.int64)
        ended_by[known] = self.rows[view.rows][pieces.ended_by[known]]
        return msgspec.structs.replace(pieces, ended_by=ended_by)

    def _view(self, start_ns: int, end_ns: int) -> _View:
        span = slice(
            int(np.searchsorted(self.reach, start_ns, side="right")),
            int(np.searchsorted(self.activities.start_ns, end_ns)),
        )
        touching = self.activities.end_ns[span] > start_ns
        rows: slice | Ints = span
        if not touching.all():  # some ended before, beside a longer one that reaches in
            rows = np.flatnonzero(touching) + int(span.start)
        return _View(self, rows, start_ns, end_ns)


class _View:
    """The activities of a device that touch a window, cut to it."""

    def __init__(self, device: Device, rows: slice | Ints, start_ns: int, end_ns: int) -> None:
        self.device = device
        self.rows = rows
        self.start_ns, self.end_ns = start_ns, end_ns
        self.window_ns = max(end_ns - start_ns, 0)
        self.all = device.activities.select(rows)
        self.calls = device.calls.select(rows)
        self.starts, self.ends = intervals.clip_any(
            self.all.start_ns, self.all.end_ns, start_ns, end_ns
        )
        self.durations = self.ends - self.starts
        self.kernels = self.all.kind == vocabulary.KERNEL
        self.communication = self.kernels & device.flags.communication[self.all.name]
        self.compute = self.kernels & ~self.communication
        self.occupancy = device.occupancy[rows]
        self.blocks = device.blocks[rows]
        self.gaps = Gaps.of(self.all, self.calls.returned_ns, start_ns, end_ns)
        self.unavailable: dict[str, str] = {}

    def metrics(self, host: Causes) -> DeviceMetrics:
        sets = {
            "busy": self._covered(np.ones(len(self.all), bool)),
            "kernel": self._covered(self.kernels),
            "compute": self._covered(self.compute),
            "communication": self._covered(self.communication),
        }
        lengths = {name: intervals.length(covered) for name, covered in sets.items()}
        times = {
            **lengths,
            "exposed_communication": lengths["kernel"] - lengths["compute"],
            "exposed_copy": lengths["busy"] - lengths["kernel"],
        }
        pieces = IdlePieces.of(self.gaps, host, waits=self.device.waits)
        properties = self.device.properties
        return DeviceMetrics(
            device=self.device.number,
            name=properties.name if properties else "",
            **{f"{name}_pct": self._share(length, f"{name}_pct") for name, length in times.items()},
            **self._sm_efficiency(lengths["compute"]),
            occupancy_pct=self._occupancy(),
            **self._tensor_cores(),
            num_kernels=int(self.kernels.sum()),
            short_kernel_pct=self._short_kernels(),
            copies=self._copies(),
            num_launches=self._launches(),
            idle=self._idle(pieces),
            longest_gap=self._longest(self.gaps),
            unavailable=self.unavailable,
        )

    def _longest(self, gaps: Gaps) -> LongestGap | None:
        if len(gaps.start_ns) == 0:
            self.unavailable["longest_gap"] = "the GPU never stood still in the window"
            return None
        names = self.device.flags.names
        row = int(np.argmax(gaps.end_ns - gaps.start_ns))
        ended_by = int(gaps.ended_by[row])
        call = int(self.calls.name[ended_by]) if ended_by >= 0 else -1
        return LongestGap(
            gap_s=int(gaps.end_ns[row] - gaps.start_ns[row]) / 1e9,
            host_s=int(gaps.split_ns[row] - gaps.start_ns[row]) / 1e9,
            ended_by=names[self.all.name[ended_by]] if ended_by >= 0 else "",
            launched_by=names[call] if call >= 0 else "",
        )

    def _covered(self, rows: _Rows) -> intervals.IntervalSet:
        return intervals.union(self.starts[rows], self.ends[rows])

    def _share(self, length_ns: float, field: str) -> float | None:
        return self._ratio(length_ns, self.window_ns, field, EMPTY_WINDOW)

    def _idle(self, pieces: IdlePieces) -> IdleShares | None:
        if self.window_ns == 0:
            self.unavailable["idle"] = EMPTY_WINDOW
            return None
        return idle_shares(pieces, self.window_ns)

    def _ratio(self, part: float, whole: float, field: str, why: str) -> float | None:
        if whole > 0:
            return 100.0 * part / whole
        self.unavailable[field] = why
        return None

    def _sm_efficiency(self, compute_ns: int) -> dict[str, float | None]:
        fields = "sm_efficiency_pct", "sm_efficiency_computing_pct"
        known = self.kernels & (self.blocks > 0)
        if not known.any() or self.window_ns == 0:
            why = "the trace does not state grids or blocks per multiprocessor"
            why = why if self.kernels.any() else _NO_KERNELS
            self.unavailable.update(dict.fromkeys(fields, why))
            return dict.fromkeys(fields)
        kernel_ns = intervals.length(self._covered(self.kernels))
        total = self._blocks_integral(known, kernel_ns, "kernel", fields[0])
        compute = self._blocks_integral(known & self.compute, compute_ns, "computing", fields[1])
        values = (
            None if total is None else self._share(total, fields[0]),
            None if compute is None else self._ratio(compute, compute_ns, fields[1], _NO_COMPUTE),
        )
        return dict(zip(fields, values, strict=True))

    def _blocks_integral(self, known: _Rows, whole_ns: int, whose: str, field: str) -> float | None:
        """Integral of the capped blocks per multiprocessor; `None` where too few are known.

        What is not known would count as empty, and the efficiency be no upper bound.
        """
        stated = intervals.length(self._covered(known))
        if stated < GRIDS_STATED * whole_ns:
            self.unavailable[field] = (
                f"the trace states grids for {stated / whole_ns:.0%} of the {whose} time only"
            )
            return None
        return intervals.capped_integral(self.starts[known], self.ends[known], self.blocks[known])

    def _occupancy(self) -> float | None:
        """Occupancy of compute kernels, weighted by duration."""
        rows = self.compute & np.isfinite(self.occupancy)
        weights = self.durations[rows]
        total = int(weights.sum())
        if total == 0:
            why_not = occupancy.why_unknown(self.device.properties)
            why = why_not or "the trace does not state grids, blocks and registers"
            self.unavailable["occupancy_pct"] = why if self.compute.any() else _NO_COMPUTE
            return None
        return float((self.occupancy[rows] * weights).sum() / total)

    def _tensor_cores(self) -> dict[str, float | None]:
        flags, names = self.device.flags, self.all.name
        whole = int(self.durations[self.compute].sum())
        return {
            field: self._ratio(
                int(self.durations[self.compute & of[names]].sum()), whole, field, _NO_COMPUTE
            )
            for field, of in (
                ("tensor_core_pct", flags.tensor_cores),
                ("tensor_core_unknown_pct", flags.tensor_unknown),
            )
        }

    def _short_kernels(self) -> float | None:
        whole = self.all.end_ns - self.all.start_ns
        short = self.kernels & (whole < SHORT_KERNEL_NS)
        return self._ratio(
            int(self.durations[short].sum()),
            int(self.durations[self.kernels].sum()),
            "short_kernel_pct",
            _NO_KERNELS,
        )

    def _launches(self) -> int | None:
        numbers = self.all.correlation[self.kernels]
        if len(numbers) == 0 or (numbers < 0).any():
            self.unavailable["num_launches"] = (
                "the trace does not link kernels to calls" if len(numbers) else _NO_KERNELS
            )
            return None
        return len(np.unique(numbers))

    def _copies(self) -> tuple[Copies, ...]:
        names = self.device.flags.names
        copies = self.all.kind == vocabulary.MEMCPY
        directions: dict[str, list[int]] = {}
        for name in np.unique(self.all.name[copies]).tolist():
            directions.setdefault(vocabulary.copy_direction(names[name]), []).append(name)
        table = []
        for direction, members in sorted(directions.items()):
            rows = copies & np.isin(self.all.name, members)
            sizes = self.all.num_bytes[rows]
            table.append(
                Copies(
                    direction=direction,
                    num_copies=int(rows.sum()),
                    total_s=int(self.durations[rows].sum()) / 1e9,
                    num_bytes=int(sizes.sum()) if (sizes >= 0).all() else None,
                )
            )
        return tuple(table)
