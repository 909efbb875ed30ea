"""What distribution costs and brings, in words."""

from __future__ import annotations

from ....records import Advice, RunRecord, Scaling, SizeAxis, Spread
from ....units import format_seconds
from ...report import Row
from ...words.wording import beside_value, measured, measured_seconds

SHOWN = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of devices that are listed, beside those that were measured."""


def distribution_rows(record: RunRecord, advice: Advice) -> list[tuple[str, str]]:
    """Label and text of what is known of the ranks; empty for a single rank."""
    job = record.distribution
    if job is None or job.world_size < 2 or not job.ranks:
        return []
    hosts = {rank.host for rank in job.ranks}
    seen = job.parallelism
    shapes = ", ".join(seen.shapes) if seen is not None and seen.shapes else "no wrapper was seen"
    backend = f", {seen.backend}" if seen is not None and seen.backend else ""
    where = "one host" if len(hosts) == 1 else f"{len(hosts)} hosts"
    rows = [("ranks", f"{job.world_size} on {where} ({job.launcher}); {shapes}{backend}")]
    sizes = "all batch sizes and samples/s above are per rank"
    discovery = record.discovery
    if discovery is not None and discovery.shared is not None:
        own = discovery.shared
        sizes += (
            f"; the script's own {own.name}={own.number} is of all ranks, "
            f"{discovery.native_batch_size} of each"
        )
    rows.append(("sizes", sizes))
    scaling = advice.scaling
    if scaling is None:
        reason = job.unavailable.get("communication", "no paired steps were made")
        return [*rows, ("Tcomp, Tsync", f"unavailable: {reason}")]
    return rows + _costs(scaling, advice.axis)


def _costs(scaling: Scaling, axis: SizeAxis) -> list[tuple[str, str]]:
    rows = [
        ("Tcomp", f"{_ms(scaling.compute_s)} a step at batch {scaling.batch_size}, all ranks busy"),
        *(
            [("Tcomp of one", f"{_ms(scaling.alone_s)} a step, the other ranks waiting")]
            if scaling.alone_s is not None
            else []
        ),
        ("Tsync", f"{_ms(scaling.sync_s)}, what synchronisation adds (paired steps)"),
    ]
    if scaling.wire_s is not None:
        rows.append(("  of which", f"{_ms(scaling.wire_s)} is the transfer, by DDP's own clock"))
    if scaling.straggler is not None:
        worst = max(scaling.waits_s)
        rows.append(
            ("straggler", f"rank {scaling.straggler}; others wait up to {format_seconds(worst)}")
        )
    rows.append(("verdict", f"{scaling.verdict}: {scaling.message}"))
    if scaling.break_even_batch is not None:
        low, high = scaling.break_even_low, scaling.break_even_high
        between = "" if low == high else f" ({low} to {high})"
        rows.append(
            (
                "break-even",
                f"from about {scaling.break_even_batch} {axis} a rank{between}, estimate",
            )
        )
    else:
        reason = scaling.unavailable.get("break_even_batch", "not known")
        rows.append(("break-even", f"unavailable: {reason}"))
    return rows


def _ms(spread: Spread) -> str:
    return f"{beside_value(*measured(spread, 1e3))} ms"


def epochs_unknown(scaling: Scaling) -> str:
    """Why epochs have no time; empty where they have one."""
    reason = scaling.unavailable.get("epoch_s")
    return "" if reason is None else f"epoch times unavailable: {reason}"


def epoch_rows(scaling: Scaling) -> tuple[Row, ...]:
    """Devices, time of an epoch, speed-up, and whether they are measured or an estimate."""
    rows = []
    for point in scaling.points:
        if point.world_size not in SHOWN and point.confidence != "measured":
            continue
        epoch = "?" if point.epoch_s is None else measured_seconds(point.epoch_s)
        speed = "x1" if point.world_size == 1 else f"x{beside_value(*measured(point.speedup))}"
        basis = "from measured steps" if point.confidence == "measured" else "estimate"
        rows.append(Row(cells=(str(point.world_size), epoch, speed, basis)))
    return tuple(rows)
