"""The parts of a step that are no computation, cause by cause, and what a larger batch changes.

Pure arithmetic on the shares that a trace gave. Each loss is what its removal would save, not how
long it was to be seen: host work that only follows a needless synchronisation counts there.
"""

from __future__ import annotations

from typing import Literal

from ...records import Evidence, Limit, Profile, Record

LossKind = Literal["input", "synchronisation", "host", "communication", "copies"]

HOST_PACES_WAIT = 0.03
"""A host that waits for the device for less of the step than this is never ahead of it ..."""
HOST_PACES_LOSS = 0.15
"""... and where the device then waits so long for the host, work on the device costs nothing."""
TRUSTED_EFFICIENCY_PCT = 5.0
"""An efficiency below this says that grids are not known, not that they are so small."""
LONG_WAIT = 0.10
"""Share of the window from which on it is said what waits of the host are worth."""
LOSS_WORDS: dict[LossKind, str] = {
    "input": "waiting for the DataLoader",
    "synchronisation": "the host waits for the GPU, then the GPU for the host",
    "host": "waiting for the host to launch work",
    "communication": "communication that no computation covers",
    "copies": "copies that no kernel covers",
}


class Losses(Record, frozen=True, kw_only=True):
    """Shares of the step of one GPU, 0..1.

    Attributes:
        input: the GPU waits for the DataLoader.
        synchronisation: the GPU has nothing queued because the host waited for it before.
        host: the GPU waits for Python, dispatch or a launch.
        communication: collectives that no computation covers.
        copies: copies that no kernel covers.
        compute: kernels that are no communication.
        unfilled: the part of `compute` that kernels of full size would not need; `None` if the
            trace does not state grids.
        unexplained: dependencies between streams, launches from before the trace, the window's
            end.
        host_paces: the host is never ahead of the GPU, so that work on the device costs nothing
            in the end.
    """

    input: float
    synchronisation: float
    host: float
    communication: float
    copies: float
    compute: float
    unfilled: float | None
    unexplained: float
    host_paces: bool

    def ranked(self) -> list[tuple[LossKind, float]]:
        """The losses, the largest first; what the host hides comes last."""
        order: tuple[LossKind, ...] = (
            "input",
            "communication",
            "copies",
            "synchronisation",
            "host",
        )
        shares = [(kind, float(getattr(self, kind))) for kind in order]
        hidden = ("communication", "copies") if self.host_paces else ()
        return sorted(shares, key=lambda loss: (loss[0] in hidden, -loss[1]))

    def largest(self) -> tuple[LossKind, float]:
        """The loss with the largest share of the step."""
        return self.ranked()[0]

    def contributions(self) -> tuple[Evidence, ...]:
        """The losses of at least 1 % in words."""
        return tuple(
            Evidence(metric=LOSS_WORDS[kind], value=round(share, 4))
            for kind, share in sorted(self.ranked(), key=lambda loss: -loss[1])
            if share >= 0.01
        )

    def gain_at_most(self) -> float:
        """The factor that a batch without end would reach on samples per second.

        What a step costs whatever its size is amortised: host, synchronisation, collectives. What
        each sample costs stays: computation, copies, loading.
        """
        amortised = self.host + self.synchronisation + self.communication + (self.unfilled or 0.0)
        return 1 / max(1 - amortised, 0.01)


def losses_of(profile: Profile | None, input_share: float | None = None) -> Losses | None:
    """The losses that a profile of a GPU shows; `None` if it shows no GPU or not enough of it.

    Args:
        profile: of the window.
        input_share: share of unprofiled steps in which the script waited for its DataLoader.
    """
    if profile is None or profile.idle is None or profile.compute_pct is None:
        return None
    idle = profile.idle
    waited = idle.input_pct / 100
    if input_share is not None and profile.input_wait_pct is not None:
        # Few steps are profiled, many are timed: stalls that come in bursts show in the latter.
        waited = min(max(waited + input_share - profile.input_wait_pct / 100, 0.0), 1.0)
    host = (
        idle.host_pct
        + idle.launch_pct
        + idle.call_pct
        + idle.synchronize_pct
        + idle.launch_latency_pct
    ) / 100
    device_wait = (profile.device_wait_pct or 0.0) / 100
    ahead = max(device_wait - idle.synchronize_pct / 100, 0.0)
    bound = wait_bound(profile)
    # A loader after a synchronisation is input: workers take it away, whatever waited before.
    synchronisation = min(idle.drained_pct / 100, ahead, host, 1.0 if bound is None else bound)
    host -= synchronisation
    efficiency = profile.sm_efficiency_computing_pct
    compute = profile.compute_pct / 100
    known = efficiency is not None and efficiency >= TRUSTED_EFFICIENCY_PCT
    return Losses(
        input=waited,
        synchronisation=synchronisation,
        host=host,
        communication=(profile.exposed_communication_pct or 0.0) / 100,
        copies=(profile.exposed_copy_pct or 0.0) / 100,
        compute=compute,
        unfilled=compute * (1 - efficiency / 100) if efficiency is not None and known else None,
        unexplained=(idle.dependency_pct + idle.unknown_pct + idle.tail_pct) / 100,
        host_paces=device_wait < HOST_PACES_WAIT and host + waited >= HOST_PACES_LOSS,
    )


def wait_bound(profile: Profile) -> float | None:
    """Share of the step that is saved at most if the host never waits for the device, 0..1.

    Then the longer of host and device sets the pace: at most the shorter of them is saved. How long
    a wait takes is mostly the queue before it.
    """
    if profile.device_wait_pct is None or profile.busy_pct is None:
        return None
    waits, busy = profile.device_wait_pct / 100, profile.busy_pct / 100
    return max(min(waits, 1 - waits, busy, 1 - busy), 0.0)


def wait_notes(profile: Profile) -> tuple[str, ...]:
    """Says what the host's waits cost, where they are long."""
    bound, waits = wait_bound(profile), profile.device_wait_pct
    if bound is None or waits is None or waits < 100 * LONG_WAIT:
        return ()
    note = (
        f"the host waits for the GPU for {waits:.0f}% of the window; without these waits a step is "
        f"shorter by {bound:.0%} at most: by itself the host takes {1 - waits / 100:.0%}, the GPU "
        f"{profile.busy_pct:.0f}%"
    )
    return (note,)


def message_of(limit: Limit, losses: Losses) -> str:
    """What limits the step, in a sentence with its share."""
    share = getattr(losses, limit, 0.0) if limit in LOSS_WORDS else 0.0
    if limit == "input":
        return f"for {share:.0%} of the step the GPU waits for the DataLoader"
    if limit == "synchronisation":
        return (
            f"the host waits for the GPU inside the step; {share:.0%} of the step is lost because "
            "nothing is queued afterwards"
        )
    if limit == "host":
        return f"for {share:.0%} of the step the GPU waits for the host to launch work"
    if limit == "communication":
        return f"communication that no computation covers takes {share:.0%} of the step"
    if limit == "copies":
        return f"copies that no kernel covers take {share:.0%} of the step"
    if limit == "small kernels":
        return (
            f"the GPU computes for {losses.compute:.0%} of the step, with kernels too small to "
            "fill it"
        )
    if losses.unfilled is None:
        return (
            f"the GPU computes for {losses.compute:.0%} of the step; whether its kernels fill it "
            "the trace does not tell"
        )
    return f"the GPU computes for {losses.compute:.0%} of the step, with kernels that fill it"
