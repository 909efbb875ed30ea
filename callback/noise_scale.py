"""The noise scale of a watched training, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..advisor.measured.noise_scale import noise_interval
from ..records import NoiseScale

if TYPE_CHECKING:
    from ..probes.windows.gradient_norms import NoiseMeter


def noise_scale_of(
    meter: NoiseMeter | None, *, wanted: bool
) -> tuple[NoiseScale | None, dict[str, str]]:
    """The scale as it stands now, else the reason. Waits for the device.

    Args:
        meter: of the gradients, where the loop has some of torch.
        wanted: whether the user asked for it.
    """
    if meter is None:
        reason = "this loop has no gradients of torch" if wanted else "noise_scale=False"
        return None, {"noise_scale": reason}
    if meter.unavailable:
        return None, {"noise_scale": meter.unavailable}
    pairs = meter.found()
    if pairs is None:
        return None, {
            "noise_scale": "no step had two gradients of equal size: accumulation or several "
            "ranks are needed"
        }
    large = pairs.small_batch * pairs.multiple
    interval = noise_interval(pairs.squares, pairs.small_batch, large)
    if isinstance(interval, str):
        return None, {"noise_scale": interval}
    low, high = interval
    noise = NoiseScale(
        source="ranks" if meter.ranks == pairs.multiple else "accumulation",
        small_batch=pairs.small_batch,
        large_batch=large,
        num_measured=len(pairs.squares),
        first_step=pairs.first_step,
        last_step=pairs.last_step,
        low=low,
        high=high,
        unavailable={} if high is not None else {"high": "the noise leaves a lower bound only"},
    )
    return noise, {}
