"""What a device did, metric by metric: the GPU summary of runs and of anybody's traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...records import Advice, Counters, Profile, Record, RunRecord
from ..report import Column, Row, Table
from ..words.wording import clean, percent
from .sizes.rows import size_rows


class Measured(Record, frozen=True, kw_only=True):
    """A column of the summary: one size of a run, or one GPU of a trace."""

    name: str
    profile: Profile | None = None
    counters: Counters | None = None


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{percent(value)}%"


def _of(field: str) -> Callable[[Profile], str]:
    return lambda profile: _percent(getattr(profile, field))


def _idle(field: str) -> Callable[[Profile], str]:
    return lambda profile: "-" if profile.idle is None else _percent(getattr(profile.idle, field))


def _tensor(profile: Profile) -> str:
    known, unknown = profile.tensor_core_pct, profile.tensor_core_unknown_pct
    text = _percent(known)
    return f"{text} + {percent(unknown)}%?" if known is not None and unknown else text


def _rest(profile: Profile) -> str:
    idle = profile.idle
    return "-" if idle is None else _percent(idle.unknown_pct + idle.tail_pct)


def _launches(profile: Profile) -> str:
    return "-" if profile.kernels_per_launch is None else f"{profile.kernels_per_launch:.3g}"


_TRACED: tuple[tuple[str, Callable[[Profile], str], str], ...] = (
    ("GPU busy", _of("busy_pct"), "a kernel, a copy or a set ran"),
    ("kernels", _of("kernel_pct"), "a kernel ran, communication included"),
    ("computing", _of("compute_pct"), "a kernel other than communication ran"),
    ("communication", _of("communication_pct"), "a collective ran, waiting for others included"),
    ("exposed communication", _of("exposed_communication_pct"), "while nothing was computed"),
    ("exposed copies", _of("exposed_copy_pct"), "copies and sets while no kernel ran"),
    ("SM efficiency", _of("sm_efficiency_pct"), "estimated, at most; idle time counts as 0"),
    ("SM efficiency, computing", _of("sm_efficiency_computing_pct"),
     "the same over the time in which something was computed"),
    ("occupancy", _of("occupancy_pct"), "achieved, estimated; mean over kernels by duration"),
    ("tensor cores", _tensor, "kernel time surely on them; + where kernels' names cannot tell"),
    ("short kernels", _of("short_kernel_pct"), "kernel time in kernels below 10 µs"),
    ("kernels per launch", _launches, "above 1: CUDA graphs"),
    ("idle", _idle("total_pct"), "nothing ran; by cause:"),
    ("… DataLoader", _idle("input_pct"), "the host waited for its input"),
    ("… Python, dispatch", _idle("host_pct"), "the host was busy with something else"),
    ("… launching", _idle("launch_pct"), "inside calls that launch kernels"),
    ("… other calls", _idle("call_pct"), "inside copies and allocations"),
    ("… synchronising", _idle("synchronize_pct"), "inside calls that wait for the GPU"),
    ("… launch latency", _idle("launch_latency_pct"), "launched, started within 30 µs of that"),
    ("… dependencies", _idle("dependency_pct"), "launched, waited for another stream or event"),
    ("… unknown, tail", _rest,
     "the launch is not in the trace, or nothing came afterwards"),
    ("host waits for the GPU", _of("device_wait_pct"), "synchronising calls and blocking copies"),
    ("inside CPU operators", _of("operators_pct"), "any thread"),
    ("waiting for input", _of("input_wait_pct"), "the script waited for its DataLoader"),
)  # fmt: skip

_COUNTED: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("NVML utilisation", "utilization_pct", _percent, "any kernel ran, however small"),
    ("SMs active", "sm_active_pct", _percent, "hardware counter"),
    ("SM occupancy", "sm_occupancy_pct", _percent, "hardware counter"),
    ("tensor cores active", "tensor_active_pct", _percent, "hardware counter"),
    ("memory bandwidth", "dram_active_pct", _percent, "hardware counter, of the maximum"),
    ("power", "power_w", lambda watts: f"{watts:.0f} W", "median of the samples"),
    ("temperature", "temperature_c", lambda celsius: f"{celsius:.0f} °C", "median of the samples"),
    ("SM clock", "sm_clock_mhz", lambda mhz: f"{mhz:.0f} MHz", "median of the samples"),
    ("throttled", "throttled_pct", _percent, "samples with clocks held down by heat or a brake"),
)


def run_summary(record: RunRecord, advice: Advice) -> Table | None:
    """The metrics of a run, one column for each size that has any."""
    on_gpu = record.device is None or record.device.kind != "cpu"
    title = "GPU summary" if on_gpu else "CPU summary"
    measured = [
        Measured(name=str(row.batch_size), profile=row.profile, counters=row.counters)
        for row in size_rows(record, advice)
        if row.profile is not None or row.counters is not None
    ]
    return summary(measured, f"{title}, by batch size")


def summary(measured: Sequence[Measured], title: str) -> Table | None:
    """Metrics below each other, one column for each of `measured`; `None` where nothing is known.

    A row that nobody has a value for is left out, the reasons for missing values are notes.
    """
    empty = Profile()
    rows = [
        (name, [value(column.profile or empty) for column in measured], what)
        for name, value, what in _TRACED
    ]
    for name, field, text, what in _COUNTED:
        values = [
            getattr(column.counters, field) if column.counters is not None else None
            for column in measured
        ]
        rows.append((name, ["-" if value is None else text(value) for value in values], what))
    known = [(name, cells, what) for name, cells, what in rows if set(cells) - {"-"}]
    if not known:
        return None
    return Table(
        title=title,
        columns=(
            Column(title="share of the window", left=True),
            *(Column(title=clean(column.name)) for column in measured),
            Column(title="what it is", left=True),
        ),
        rows=tuple(Row(cells=(name, *cells, what)) for name, cells, what in known),
        notes=_reasons(measured),
    )


def _reasons(measured: Sequence[Measured]) -> tuple[str, ...]:
    """Why values are missing or wrong, each reason once, with what it is about."""
    reasons: dict[str, dict[str, None]] = {}
    for column in measured:
        for part in (column.profile, column.counters):
            for field, why in part.unavailable.items() if part is not None else ():
                name = field.removesuffix("_pct").replace("_", " ")
                reasons.setdefault(why, {})[name if field != "*" else "all"] = None
        if column.profile is not None and column.profile.losses:
            reasons.setdefault(column.profile.losses, {})[column.name] = None
        for clause in column.profile.left_out if column.profile is not None else ():
            reasons.setdefault(f"left out: {clause}", {})[column.name] = None
    return tuple(clean(f"{', '.join(names)}: {why}.") for why, names in reasons.items())
