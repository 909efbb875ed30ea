"""The operations of a step and their rate, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ...sizes import SizeRow
from ...words.wording import pad_digits, percent

UNITS = ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"))


def flop_facts(rows: Sequence[SizeRow]) -> list[tuple[str, str]]:
    """A line about the recommended size, else about the largest that was counted."""
    counted = [row for row in rows if row.flops is not None]
    if not counted:
        return []
    row = next((row for row in counted if "recommended" in row.marks), counted[-1])
    return [("Computes", _text(row))]


def flop_reasons(row: SizeRow) -> dict[str, str]:
    """Why fields of a size are `None`."""
    if row.flops is not None:
        return dict(row.flops.unavailable)
    reason = row.unavailable.get("flops")
    fields = ("flops_per_step", "tflops_per_s", "mfu_pct")
    return dict.fromkeys(fields, reason) if reason else {}


def _text(row: SizeRow) -> str:
    flops = row.flops
    assert flops is not None
    about = "about " if flops.scaled else ""
    text = (
        f"{about}{_amount(flops.per_step)} a step at batch {row.batch_size}, forward and backward "
        f"({flops.dtype})"
    )
    if flops.scaled:
        text += ", counted in one step and scaled to the mean batch"
    if flops.recomputed:
        text += f"; checkpointing computes {percent(100 * flops.recomputed)}% of it once more"
    text += f"; {_amount(flops.tflops_per_s.median * 1e12)}/s"
    if flops.mfu_pct is not None and flops.peak_tflops_per_s is not None:
        peak = pad_digits(flops.peak_tflops_per_s, 0.001)
        text += f", {percent(flops.mfu_pct)}% of the GPU's dense peak of {peak} TFLOP/s (MFU)"
    elif "mfu_pct" in flops.unavailable:
        text += f"; no share of a peak: {flops.unavailable['mfu_pct']}"
    return text + "."


def _amount(operations: float) -> str:
    for size, unit in UNITS:
        if operations >= size:
            return f"{pad_digits(operations / size, 0.01)} {unit}"
    return f"{operations:.0f} FLOP"
