"""Findings about the batches that reached the training loop: sizes, whose they were."""

from __future__ import annotations

from collections.abc import Callable

from ...records import Evidence, Finding
from ..measured.kernel_limits import beyond_index as beyond
from ..measured.measurements import Measurements
from ..measured.training import FAR
from . import length_findings

LEAST_OTHER_STEPS = 0.05
"""Steps of other tasks in a step from which on they count; rarer ones do not move its median."""


def _mixed(measurements: Measurements) -> list[Finding]:
    """Other tasks train between two batches of the steered loader."""
    most = max((trial.steps_elsewhere for trial in measurements.ran), default=0.0)
    if most < LEAST_OTHER_STEPS:
        return []
    return [
        Finding(
            rule="steps.mixed",
            severity="warning",
            message=f"a step that was timed holds {most:.2g} more on average, on batches of other "
            "loaders that keep the script's own size; the times are those of the mixture",
            evidence=(
                Evidence(
                    metric="steps of other loaders",
                    value=round(most, 3),
                    threshold=LEAST_OTHER_STEPS,
                ),
            ),
            remedy="run a script that trains on one of these loaders alone, once for each.",
        )
    ]


def _approximate(measurements: Measurements) -> list[Finding]:
    discovery = measurements.record.discovery
    if discovery is None or discovery.primary.steered != "approximate":
        return []
    return [
        Finding(
            rule="steering.approximate",
            severity="warning",
            message=f"the batch sampler {discovery.primary.sampler} follows no "
            "batch_size; its batches were flattened and cut again, its grouping is lost",
            remedy="treat times and memory as estimates if it groups by length or "
            "by a budget of tokens.",
        )
    ]


def far_from_own(measurements: Measurements, batch_size: int) -> list[Finding]:
    """An effective batch so much larger that the training is another one."""
    own, goal = measurements.own_size, measurements.goal
    if own is None or goal.keep_effective_batch:
        return []
    factor = _times_the_samples(measurements, batch_size, own)
    if factor is None or factor <= FAR:
        return []
    bound = "--sizes up to" if goal.sizes else "--max-batch"
    kept = "" if goal.sizes else "; --keep-effective-batch changes nothing of the training"
    discovery = measurements.record.discovery
    units = "samples" if discovery is None else discovery.axis
    measured = "throughput" if batch_size in measurements.best_timed else "memory"
    return [
        Finding(
            rule="training.far",
            severity="warning",
            message=f"an optimizer step sees x{factor:,.0f} the {units} of the script's own: the "
            f"{measured} was measured, and whether the model trains as well with so few steps was "
            "not",
            evidence=(Evidence(metric="effective batch", value=round(factor, 1), threshold=FAR),),
            remedy=f"keep to {bound} {FAR * own} until a larger one has trained as well{kept}.",
        )
    ]


def _times_the_samples(measurements: Measurements, batch_size: int, own: int) -> float | None:
    """Samples of an optimizer step over those of the script's own; `None` where unknown.

    A script may step after so many samples, or cut a batch into parts with a step each.
    """
    discovery, trial = measurements.record.discovery, measurements.best_timed.get(batch_size)
    factor = batch_size / own
    if discovery is None or trial is None:
        return factor
    if trial.micro_batches is not None:
        factor *= trial.micro_batches / discovery.micro_batches
    if trial.steps_per_batch is not None:
        if not trial.steps_per_batch:
            return None
        factor *= discovery.steps_per_batch / trial.steps_per_batch
    return factor


def beyond_index(measurements: Measurements, batch_size: int) -> list[Finding]:
    """A tensor that an index of 32 bits does not reach: some kernels say nothing and are wrong."""
    shapes = [
        trial.flops.largest_tensor
        for trial in measurements.ran
        if trial.batch_size == batch_size and trial.flops is not None
    ]
    limits = [beyond(shape, batch_size) for shape in shapes]
    limit = next((limit for limit in limits if limit is not None), None)
    if limit is None:
        return []
    within = f"take {limit.largest} or less, by these shapes, or " if limit.largest else ""
    return [
        Finding(
            rule="size.beyond_index",
            severity="warning",
            message=f"batch {batch_size} ran, and {limit.why}: kernels that index with 32 bits "
            "fail there or compute wrong values without an error",
            remedy=f"{within}see that the loss of this size is that of its halves.",
        )
    ]


def _above_data(measurements: Measurements) -> list[Finding]:
    """Sizes that no epoch of the script has a batch of; only the user can ask for them."""
    script = measurements.script
    num = script.num_units
    sizes = sorted({trial.batch_size for trial in measurements.ran})
    above = [size for size in sizes if num is not None and size > num]
    if not above:
        return []
    named = ", ".join(map(measurements.named, above))
    return [
        Finding(
            rule="size.above_data",
            severity="warning",
            message=f"{named}: larger than the dataset, whose epoch has {num}; the batches that "
            "were timed held samples more than once",
            evidence=(Evidence(metric="size", value=above[0], threshold=num),),
            remedy=f"ask for sizes up to {num}: in training a larger one gives batches of {num}, "
            "or none with drop_last.",
        )
    ]


def _by_budget(measurements: Measurements) -> list[Finding]:
    """Sizes are a budget: what that means, and whether the longest sequence has room in it."""
    discovery = measurements.record.discovery
    if discovery is None or discovery.axis == "samples":
        return []
    loader = discovery.primary
    findings = [
        Finding(
            rule="size.budget",
            severity="info",
            message=f"sizes are {loader.axis} of a batch ({loader.size_name}), as {loader.sampler} "
            "cuts them; its grouping is kept",
            remedy=""
            if loader.parameter
            else f"the script's own was told from its batches: at least {loader.batch_size}; its "
            "line was not found.",
        )
    ]
    own, longest = loader.batch_size, loader.longest
    if own is not None and longest is not None and longest > own:
        findings.append(
            Finding(
                rule="budget.too_short",
                severity="warning",
                message=f"the longest sample has {longest} {loader.axis}, more than the script's "
                f"own {loader.named(own)}: it has a batch of its own or is left out",
                evidence=(Evidence(metric=f"longest sample, {loader.axis}", value=longest),),
                remedy=f"cut such samples, or take at least {loader.named(longest)}.",
            )
        )
    return findings


def _bound(measurements: Measurements) -> list[Finding]:
    """The length of the batch sampler is a bound."""
    discovery = measurements.record.discovery
    if discovery is None or discovery.primary.num_drawn is None:
        return []
    loader, drawn = discovery.primary, discovery.primary.num_drawn
    return [
        Finding(
            rule="sampler.bound",
            severity="info",
            message=f"the length of {loader.sampler} is a bound: one pass drew {drawn} batches of "
            "the script's own size and ended; steps per epoch are at most what is said here",
            evidence=(Evidence(metric="batches of a pass", value=drawn),),
        )
    ]


def _by_index(measurements: Measurements) -> list[Finding]:
    alone = [
        trial for trial in measurements.ran if trial.kind != "turns" and trial.mean_arrived is None
    ]
    if not any(trial.size_proof == "indices" for trial in alone):
        return []
    return [
        Finding(
            rule="steering.indices",
            severity="info",
            message="no tensor of the batch carries its size; it was proved by the number of "
            "samples fetched from the dataset",
        )
    ]


def _samples_left_out(measurements: Measurements) -> list[Finding]:
    """Batches reach the training loop smaller than they were drawn."""
    worst = min(measurements.ran, key=lambda trial: trial.arrived_share, default=None)
    discovery = measurements.record.discovery
    if worst is None or worst.mean_arrived is None:
        return []
    if discovery is not None and discovery.axis != "samples":
        return []  # batches hold as many as the budget has room for
    return [
        Finding(
            rule="samples.left_out",
            severity="info",
            message=f"the collate function leaves samples out: {worst.mean_arrived:.1f} of "
            f"{worst.batch_size} arrived on average; samples per second count those that arrived",
            evidence=(Evidence(metric="share that arrived", value=round(worst.arrived_share, 3)),),
        )
    ]


def _as_asked(measurements: Measurements) -> list[Finding]:
    if not any(trial.size_proof == "asked" for trial in measurements.ran):
        return []
    return [
        Finding(
            rule="door.as_asked",
            severity="info",
            message="no loader and no tensor shows the batch size; the sizes are those that were "
            "asked for",
            remedy="a size that the script ignores would look as fast at every value.",
        )
    ]


def _multiples(measurements: Measurements) -> list[Finding]:
    """The script takes some sizes only, as those show that ran beside those that did not."""
    known = measurements.multiples.sure
    if not known.refused:
        return []
    words = next(
        failure.detail
        for failure in reversed(measurements.failed)
        if failure.batch_size in known.refused
    )
    at_most = f"{known.step} samples at most, or " if known.any_up_to else ""
    which = f"{at_most}multiples of {known.step}"
    if known.divide:
        which = f"sizes that divide {known.divide}"
    asked = measurements.goal.multiple_of % known.step == 0 or measurements.goal.sizes
    return [
        Finding(
            rule="size.multiples",
            severity="info",
            message=f"the script takes {which} only, by the sizes that "
            f"were tried: {_joined(known.ran)} ran, {_joined(known.refused)} did not ({words})",
            evidence=(Evidence(metric="multiple", value=known.divide or known.step),),
            remedy="" if asked else f"--multiple-of {known.step} tries no others.",
        )
    ]


def _joined(sizes: tuple[int, ...]) -> str:
    *most, last = map(str, sizes)
    return f"{', '.join(most)} and {last}" if most else last


BATCH_RULES: tuple[Callable[[Measurements], list[Finding]], ...] = (
    _above_data,
    _approximate,
    _by_budget,
    _mixed,
    *length_findings.LENGTH_RULES,
    _multiples,
    _bound,
    _by_index,
    _samples_left_out,
    _as_asked,
)
