"""One trial from the parts of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...records import RankTrial, Trial, Turns


def merged(parts: Sequence[Trial]) -> Trial:
    """Rank 0's trial with the times of the slowest rank and the memory of the fullest.

    A rank whose part did not run makes the whole trial fail.

    Args:
        parts: one a rank, in order.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    bad = next((number for number, part in enumerate(parts) if not part.ran), None)
    slowest = max(parts, key=lambda part: part.step_s.median if part.step_s else 0.0)
    fullest = max(parts, key=lambda part: part.memory.peak_bytes if part.memory else 0)
    changes: dict[str, Any] = {
        "step_s": slowest.step_s,
        "samples_per_s": slowest.samples_per_s,
        "input_wait_s": max(
            (part.input_wait_s for part in parts if part.input_wait_s),
            key=lambda wait_s: wait_s.median,
            default=None,
        ),
        "memory": fullest.memory,
        "doubts": tuple(dict.fromkeys(doubt for part in parts for doubt in part.doubts)),
        "ranks": tuple(rank_trial(number, part) for number, part in enumerate(parts)),
    }
    if first.turns is not None:
        changes["turns"] = _slowest_turns([part.turns for part in parts if part.turns is not None])
    if bad is not None:
        failed = parts[bad]
        changes |= {
            "outcome": failed.outcome,
            "detail": f"rank {bad}: {failed.detail}",
            "arrived_batch_size": failed.arrived_batch_size,
        }
    broken = next((part for part in parts if part.tail and part.tail.num_non_finite), None)
    if broken is not None:
        changes["tail"] = broken.tail
    return msgspec.structs.replace(first, **changes)


def _slowest_turns(parts: Sequence[Turns]) -> Turns:
    """Each turn took as long as on the slowest rank."""

    def slowest(turn: tuple[float | None, ...]) -> float | None:
        known = [seconds for seconds in turn if seconds is not None]
        return max(known) if len(known) == len(turn) else None

    rows = zip(*(part.step_s for part in parts), strict=False)  # ranks end at the same round
    return Turns(
        sizes=parts[0].sizes,
        step_s=tuple(tuple(map(slowest, zip(*row, strict=True))) for row in rows),
    )


def rank_trial(rank: int, part: Trial) -> RankTrial:
    """What of one rank's part is kept."""
    return RankTrial(
        rank=rank,
        outcome=part.outcome,
        detail=part.detail,
        step_s=part.step_s,
        input_wait_s=part.input_wait_s,
        peak_bytes=part.memory.peak_bytes if part.memory else None,
    )
