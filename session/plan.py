"""The plan of a search, in a line for people."""

from __future__ import annotations

from ..advisor.search.next_trial import expected
from ..records import RunRecord, traits_of
from ..reports.words.wording import plural
from ..units import format_seconds


def plan_of(record: RunRecord) -> str:
    """What the search will cost, said before it starts."""
    estimate = expected(record)
    primary = record.discovery.primary if record.discovery is not None else None
    where = f"steering the loader at {primary.place}; " if primary and primary.place else ""
    traits = traits_of("loader") if record.discovery is None else record.discovery.traits
    if traits.process_per_size:
        where = "one process for each size; "
    elif not traits.steers_loader and primary is not None:
        where = f"sizes get in {primary.steered}; "
    left = format_seconds(max(0.0, record.goal.budget_s - record.search_s))
    sizes = plural(estimate.num_sizes, "size")
    if estimate.least < estimate.num_sizes:
        sizes = f"{estimate.least} to {sizes}"
    if not estimate.fits and estimate.window_s is not None:
        one = "process" if traits.process_per_size else "window"
        text = f"one {one} takes about {format_seconds(estimate.window_s)}: "
        fit = "fits" if estimate.num_sizes == 1 else "fit"
        text += f"{sizes} {fit} in the {left} that are left"
        if estimate.enough_s is not None:
            text += f"; to compare two, use --budget {round(estimate.enough_s)}s"
        return where + text
    return (
        f"{where}about {sizes} and "
        f"{plural(estimate.num_steps, 'optimizer step')}, at most {left} more"
    )
