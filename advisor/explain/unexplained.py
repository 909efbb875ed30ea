"""Advice from a trace in which no cause of its lost time can be named."""

from __future__ import annotations

from ...records import IdleShares, LongestGap, Profile, TraceFault, Verdict
from ...units import format_seconds
from ..measured.scaling import Scaling
from .limits import Losses
from .remedies import Workers
from .verdict_from_times import by_times

WORTH_SAYING = 0.01
"""Shares below this are left out of a sentence."""
LONG_NAME = 48
"""Characters of a kernel's name that are shown."""
_RECORD = (
    "record it again with ProfilerActivity.CUDA (or XPU) and look at the profiler's warnings: "
    "another tool may hold the GPU's counters, or the window may end before the GPU has worked."
)
_AGAIN: dict[TraceFault, str] = {
    "records missing": "record fewer steps at a time (schedule(active=3)), without "
    "with_stack and profile_memory: the profiler drops what its buffers do not hold.",
    "times": "record it again; if the times are wrong again, with another version of torch or of "
    "the driver.",
    "another accelerator": "read it with the tools of the accelerator's maker: here only the host "
    "is seen.",
}
UNTIMED_SHARES = "see what a larger batch gains: `batchadvisor run` times several sizes."
"""For a trace alone that shows many small losses."""


def unexplained(losses: Losses, profile: Profile, idle: IdleShares) -> Verdict:
    """A GPU that stood still, and neither the host nor a device's work is seen to be the cause.

    Args:
        losses: of the profile.
        profile: of the window.
        idle: its idle shares.
    """
    parts = {
        "work was launched and waited for another stream, an event or a copy": idle.dependency_pct,
        "the next work was launched before the trace began": idle.unknown_pct,
        "no more work came until the window's end": idle.tail_pct,
    }
    known = [(what, pct / 100) for what, pct in parts.items() if pct >= 100 * WORTH_SAYING]
    shares = [f"{what} ({share:.0%})" if len(known) > 1 else what for what, share in known]
    message = (
        f"for {losses.unexplained:.0%} of the window nothing ran, and the trace does not show the "
        f"cause: {', '.join(shares)}"
    )
    if profile.longest_gap is not None:
        message += f"; {_gap(profile.longest_gap)}"
    for call in profile.calls[:1]:
        message += f"; the host was inside {call.name} for {call.share_pct / 100:.0%} of the window"
    return Verdict(
        limit="cannot tell",
        message=message,
        contributions=losses.contributions(),
        remedy=_remedy(profile, idle),
    )


def small_losses(losses: Losses) -> str:
    """Says that no loss stands out, and lists them."""
    shares = {"computing": losses.compute}
    shares |= {loss.metric: float(loss.value) for loss in losses.contributions()}
    shares["nothing ran, for another reason"] = losses.unexplained
    known = [f"{what} {share:.0%}" for what, share in shares.items() if share >= WORTH_SAYING]
    return f"no share of the step stands out: {', '.join(known)}"


def unrecorded(profile: Profile, wait: float | None, scaling: Scaling, workers: Workers) -> Verdict:
    """A device of which the trace holds nothing: the times decide, never the CPU's operators.

    Args:
        profile: of the window, `unrecorded` says what is missing.
        wait: share of unprofiled steps spent waiting for the DataLoader, if any were timed.
        scaling: what other sizes say.
        workers: that load meanwhile.
    """
    verdict = by_times(None, wait, scaling, workers)
    if verdict.limit != "cannot tell":
        return verdict
    message = profile.unrecorded
    if profile.input_wait_pct:
        message += (
            f"; for {profile.input_wait_pct / 100:.0%} of the window the script was in its "
            "DataLoader, whether the device waited meanwhile is not known"
        )
    return Verdict(
        limit="cannot tell",
        message=message,
        evidence=verdict.evidence,
        remedy=_AGAIN.get(profile.fault, _RECORD),
    )


def short_name(kernel: str) -> str:
    """A kernel's name without what it returns, is made for and takes.

    >>> short_name("void at::native::(anonymous namespace)::copy<float, 4>(int, float*)")
    'at::native::copy'
    """
    name = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    name = name.partition("<")[0].partition("(")[0].strip() or kernel
    return name if len(name) <= LONG_NAME else f"{name[: LONG_NAME - 3]}..."


def _gap(gap: LongestGap) -> str:
    text = f"the longest gap, {format_seconds(gap.gap_s)}, "
    if not gap.ended_by:
        return f"{text}lasts to the window's end"
    text += f"was ended by {short_name(gap.ended_by)}"
    if not gap.launched_by:
        return f"{text}, whose launch is not in the trace"
    if gap.host_s <= 0:
        return f"{text}, which {gap.launched_by} had launched before it began"
    return f"{text}, which {gap.launched_by} had launched after {format_seconds(gap.host_s)}"


def _remedy(profile: Profile, idle: IdleShares) -> str:
    """Says what to record so that the cause shows; nothing that the trace has already."""
    most = max(idle.dependency_pct, idle.unknown_pct, idle.tail_pct)
    if most == idle.tail_pct:
        return "see what the script does at the end of the window: it gives the GPU nothing to do."
    if most == idle.unknown_pct and "device_wait_pct" in profile.unavailable:
        return "profile with ProfilerActivity.CPU as well: the calls that launch work are missing."
    if most == idle.unknown_pct:
        return (
            "begin to record earlier: one more warm-up step in torch.profiler.schedule(warmup=...)."
        )
    return (
        "look at the longest gap in a trace viewer: what other streams, devices or ranks did "
        "meanwhile is what its work waited for."
    )
