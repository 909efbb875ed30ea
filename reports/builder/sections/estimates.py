"""What the fitted laws say, in words."""

from __future__ import annotations

from ....records import Advice, RunRecord
from ....units import format_bytes, format_seconds
from ...words.laws import law_text, line_text
from ...words.wording import plural

FIXED_SHARE = 0.02
"""A fixed cost per step below this share of the step is not worth a line."""


def estimate_rows(record: RunRecord, advice: Advice) -> list[tuple[str, str]]:
    """Label and text of each law."""
    rows = [
        ("largest that fits", _memory_law(record, advice)),
        ("predicted memory", _prior_law(advice)),
        ("step time", _time_law(advice)),
    ]
    return [(label, text) for label, text in rows if text]


def _memory_law(record: RunRecord, advice: Advice) -> str:
    law = advice.memory_law
    if law is not None:
        size = law.largest_estimate
        ran = any(trial.ran and trial.batch_size == size for trial in record.trials)
        return (
            f"about {size} (estimate, {'and it ran' if ran else 'did not run'}); peak memory = "
            f"{line_text(law.fixed_bytes, law.slope_bytes)}, "
            f"{_fit(law.sizes, law.residual)}"
        )
    if advice.prior_law is not None:
        return ""
    reason = advice.unavailable.get("memory_law")
    return f"no estimate: {reason}" if reason and advice.recommended is not None else ""


def _prior_law(advice: Advice) -> str:
    """The law of steps on fake tensors, and what real peaks made of it."""
    law = advice.prior_law
    if law is None:
        reason = advice.unavailable.get("prior_law")
        return f"unavailable: {reason}; the search went by measured peaks alone" if reason else ""
    formula = law_text(law.floor_bytes, law.fixed_bytes, law.sample_bytes)
    limit = f" into {format_bytes(law.target_bytes)}" if law.target_bytes else ""
    sizes = f"{plural(len(law.sizes), 'size')} from {law.sizes[0]} to {law.sizes[-1]}"
    text = (
        f"about {law.largest_estimate} fit{limit} (estimate); {_COUNTED[law.kind]} = {formula}, by "
        f"steps that computed nothing at {sizes}"
    )
    if not law.corrected_by:
        return f"{text}; no measured peak corrects it"
    measured = " and ".join(str(size) for size in law.corrected_by)
    peaks = "peak" if len(law.corrected_by) == 1 else "peaks"
    sign = "+" if law.offset_bytes >= 0 else "-"
    text += (
        f"; corrected by the {peaks} measured at {measured}: x{law.ratio:.2f} {sign} "
        f"{format_bytes(abs(law.offset_bytes))}"
    )
    if law.residual is not None:
        text += f", no measured peak is off by more than {law.residual:.1%}"
    return text


_COUNTED = {"tensors": "tensors", "segments": "what torch's allocator reserves"}


def _time_law(advice: Advice) -> str:
    """The law of step time, where the batch leaves a part of the step alone."""
    law, choice = advice.time_law, advice.recommended
    if law is None or choice is None:
        return ""
    share = law.fixed_share(choice.batch_size)
    if share < FIXED_SHARE:
        return ""
    return (
        f"{format_seconds(law.fixed_s)} + {format_seconds(law.slope_s)} x batch, "
        f"{_fit(law.sizes, law.residual)}; {share:.0%} of the step at {choice.batch_size} "
        "does not depend on the batch"
    )


def _fit(sizes: tuple[int, ...], residual: float) -> str:
    return f"fitted to {plural(len(sizes), 'size')}, off by {residual:.1%} at most"
