"""What distribution costs and brings, as terminal text."""

from __future__ import annotations

from ..records import Advice, RunRecord, Scaling, Spread
from ..units import format_seconds
from .layout import Page
from .wording import measured

SHOWN = (1, 2, 4, 8, 16, 32, 64)


def add_distribution(page: Page, record: RunRecord, advice: Advice) -> None:
    """Ranks, Tcomp and Tsync, and the epoch on more devices; nothing for a single rank."""
    rows = distribution_rows(record, advice)
    if not rows:
        return
    page.blank()
    page.entry("Several ranks", style="bold", indent=0)
    page.pairs(rows)
    if advice.scaling is not None:
        _epochs(page, advice.scaling)


def distribution_rows(record: RunRecord, advice: Advice) -> list[tuple[str, str]]:
    """Label and text of what is known of the ranks; empty for a single rank."""
    found = record.distribution
    if found is None or found.world_size < 2 or not found.ranks:
        return []
    hosts = {one.host for one in found.ranks}
    seen = found.parallelism
    shapes = ", ".join(seen.shapes) if seen is not None and seen.shapes else "no wrapper was seen"
    backend = f", {seen.backend}" if seen is not None and seen.backend else ""
    where = "one host" if len(hosts) == 1 else f"{len(hosts)} hosts"
    rows = [("ranks", f"{found.world_size} on {where} ({found.launcher}); {shapes}{backend}")]
    rows.append(("sizes", "all batch sizes and samples/s above are per rank"))
    scaling = advice.scaling
    if scaling is None:
        reason = found.unavailable.get("communication", "no paired steps were made")
        return [*rows, ("Tcomp, Tsync", f"unavailable: {reason}")]
    return rows + _costs(scaling)


def _costs(scaling: Scaling) -> list[tuple[str, str]]:
    rows = [
        ("Tcomp", f"{_ms(scaling.compute_s)} a step at batch {scaling.batch_size}, all ranks busy"),
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
                f"from about {scaling.break_even_batch} samples a rank{between}, estimate",
            )
        )
    else:
        reason = scaling.unavailable.get("break_even_batch", "not known")
        rows.append(("break-even", f"unavailable: {reason}"))
    return rows


def _epochs(page: Page, scaling: Scaling) -> None:
    if "epoch_s" in scaling.unavailable:
        page.entry(f"epoch times unavailable: {scaling.unavailable['epoch_s']}")
    page.entry("devices  epoch              speed-up")
    for point in scaling.points:
        if point.world_size not in SHOWN and point.confidence != "measured":
            continue
        epoch = "?" if point.epoch_s is None else _seconds(point.epoch_s)
        value, half = measured(point.speedup)
        speed = "x1" if point.world_size == 1 else f"x{value} {half}"
        basis = "from measured steps" if point.confidence == "measured" else "estimate"
        page.entry(f"{point.world_size:>7}  {epoch:<17}  {speed:<14}  {basis}")


def _seconds(spread: Spread) -> str:
    return f"{format_seconds(spread.median)} ±{spread.relative_half_width:.0%}"


def _ms(spread: Spread) -> str:
    value, half = measured(spread, 1e3)
    return f"{value} {half} ms"
